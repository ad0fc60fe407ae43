/*===- CApiProgram.c - A program of another version's header ------*- C -*-===*\
|*
|* Compiled with the header that stands in test/Inputs, and with this one whose
|* structs have a further member (FURTHER). CApiTest runs both.
|*
\*===----------------------------------------------------------------------===*/

#include QWENRT_HEADER

#include <sched.h>
#include <string.h>

/* The line that failed. */
#define CHECK(condition)                                                       \
  do                                                                           \
    if (!(condition))                                                          \
      return __LINE__;                                                         \
  while (0)

/* A struct whose further member, if there is one, is not 0 on entry. */
#ifdef FURTHER
#define DECLARE(type, name)                                                    \
  type name;                                                                   \
  memset(&name, 1, sizeof(name));                                              \
  name.size = sizeof(name)
#define IS_NULL(of) ((of).further == 0)
#else
#define DECLARE(type, name) type name = {.size = sizeof(name)}
#define IS_NULL(of) 1
#endif

typedef struct heard {
  int tokens;
  int draws;
  int64_t progress;
  int64_t drawn;
  /* Set last. */
  _Atomic int32_t reason;
} heard;

static int32_t on_token(void *user, const qwen_token_event *event) {
  ((heard *)user)->tokens += event->id == 7;
  return 1;
}

static int32_t on_draw(void *user, const qwen_draw *draw) {
  heard *to = user;
  to->draws += draw->logits[0] == 0 && draw->position == 3 + to->draws;
  return 7;
}

static void on_progress(void *user, const qwen_progress *progress) {
  ((heard *)user)->progress = progress->done;
}

static void on_end(void *user, const qwen_ending *ending) {
  heard *to = user;
  to->drawn = ending->drawn_tokens;
  to->reason = ending->reason;
}

static int answer(qwen_model *model, const qwen_sampling *sampling) {
  const qwen_scheduler_options rules = {.size = sizeof(rules), .queue = 2};
  qwen_scheduler *scheduler = qwen_scheduler_new(model, &rules);
  CHECK(scheduler);
  const int32_t prompt[] = {1, 2, 3};
  heard to = {.reason = -1};
  qwen_request request = {.size = sizeof(request),
                          .prompt = prompt,
                          .prompt_size = 3,
                          .sampling = sampling,
                          .max_tokens = 4,
                          .user = &to,
                          .on_draw = on_draw,
                          .on_token = on_token,
                          .on_progress = on_progress,
                          .on_end = on_end};
  CHECK(qwen_submit(scheduler, &request) == 1);
  /* Without the last members, a request tells nothing. */
  request.size = offsetof(qwen_request, user);
  CHECK(qwen_submit(scheduler, &request) == 2);
  while (to.reason < 0)
    sched_yield();
  CHECK(to.reason == QWEN_END_LENGTH);
  CHECK(to.tokens == 4 && to.draws == 4 && to.progress == 3 && to.drawn == 4);
  DECLARE(qwen_counts, counts);
  CHECK(qwen_scheduler_counts(scheduler, &counts) == 0);
  CHECK(counts.size == sizeof(counts) && counts.free_pages > 0);
  CHECK(IS_NULL(counts));
  counts.size = offsetof(qwen_counts, free_pages);
  counts.free_pages = -5;
  CHECK(qwen_scheduler_counts(scheduler, &counts) == 0);
  CHECK(counts.free_pages == -5);
  qwen_scheduler_free(scheduler);
  return 0;
}

int PROGRAM(const char *path) {
  qwen_options options = {.size = sizeof(options), .sequences = 2};
  qwen_model *model = qwen_load(path, &options);
  CHECK(model);
  CHECK(qwen_open_sequence(model) == 0 && qwen_open_sequence(model) == 1);
  qwen_close_sequence(model, 0);
  qwen_close_sequence(model, 1);
  DECLARE(qwen_sampling, sampling);
  CHECK(qwen_default_sampling(model, &sampling) == 0);
  CHECK(sampling.size == sizeof(sampling) && IS_NULL(sampling));
  CHECK(sampling.top_k == 50);
  const int failed = answer(model, &sampling);
  if (failed)
    return failed;

  /* An older program: what it lacks has its default. */
  sampling.size = offsetof(qwen_sampling, top_p);
  sampling.top_p = 9;
  qwen_sampler *sampler = qwen_sampler_new(model, &sampling, 0);
  CHECK(sampler);
  qwen_sampler_free(sampler);
  qwen_free(model);
#ifdef FURTHER
  /* A newer one may not use what the library does not know. */
  options.further = 1;
  CHECK(!qwen_load(path, &options));
  CHECK(strncmp(qwen_last_error(), "qwen_load: options: byte ", 25) == 0);
#endif
  return 0;
}
