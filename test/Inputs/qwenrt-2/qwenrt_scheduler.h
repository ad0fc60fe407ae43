/*===- qwenrt_scheduler.h - Requests of several threads -----------*- C -*-===*\
|*
|* A part of qwenrt.h, which includes it.
|*
|* Answers the requests of any number of threads, each with the same tokens as
|* if it were alone. A model has one scheduler at most. While it has one, no
|* function may run tokens or change sequences of the model. All threads may
|* call all functions of the scheduler at the same time, and beside them those
|* of samplers and parsers and those that other threads may use at any time.
|*
\*===----------------------------------------------------------------------===*/

#ifndef QWENRT_SCHEDULER_H
#define QWENRT_SCHEDULER_H

typedef struct qwen_scheduler qwen_scheduler;

typedef struct qwen_scheduler_options {
  uint32_t size;
  /* Not 0: requests share no pages with earlier ones. */
  int32_t no_prefix_cache;
  /* Maximum number of requests that wait while all sequences run others.
     0: 64. */
  int64_t queue;
  /* Positions from one snapshot of a sequence to the next. 0: snapshot_every of
     qwen_options. With fixed state, requests share pages up to a snapshot
     only. The scheduler also takes one at the end of each answer, and at
     snapshot_at of a request. */
  int64_t snapshot_every;
} qwen_scheduler_options;

/* A token and the log of its probability, from the raw logits. */
typedef struct qwen_logprob {
  int32_t id;
  float logprob;
} qwen_logprob;

/* A drawn token, or a token of the prompt with its score. */
typedef struct qwen_token_event {
  uint32_t size;
  int32_t id;
  int64_t position;
  /* Not 0 if the token belongs to the prompt. */
  int32_t is_prompt;
  /* The log of its probability, if the request has logprobs. */
  float logprob;
  /* The most likely tokens in its place, in descending order. */
  const qwen_logprob *top;
  size_t top_count;
} qwen_token_event;

/* A token that will be drawn. */
typedef struct qwen_draw {
  uint32_t size;
  /* Its position. */
  int64_t position;
  /* The raw logits of the token before it, qwen_vocab_size() floats. */
  const float *logits;
} qwen_draw;

/* How much of a prompt has run. */
typedef struct qwen_progress {
  uint32_t size;
  int64_t done;
  int64_t total;
  /* Tokens that the prefix cache had; they count as done. */
  int64_t cached;
} qwen_progress;

/* Why a request ended. */
enum {
  /* A stop token was drawn. */
  QWEN_END_STOP = 0,
  /* The answer has max_tokens tokens, or the context is full. */
  QWEN_END_LENGTH = 1,
  /* on_token returned 0. */
  QWEN_END_CALLBACK = 2,
  /* qwen_cancel, or qwen_scheduler_free. */
  QWEN_END_CANCELLED = 3,
  /* qwen_ending has the error. */
  QWEN_END_FAILED = 4
};

typedef struct qwen_ending {
  uint32_t size;
  /* A QWEN_END number. */
  int32_t reason;
  /* QWEN_END_FAILED: a QWEN_ERROR number and one line. */
  int32_t error;
  const char *text;
  int64_t prompt_tokens;
  /* Tokens of the prompt that the prefix cache had. */
  int64_t cached_tokens;
  /* Drawn tokens of the answer; of a beam search, the tokens of all answers. */
  int64_t drawn_tokens;
} qwen_ending;

/* When a beam search with as many answers as beams ends. */
enum {
  /* When no beam would be better if it ended now. */
  QWEN_EARLY_STOPPING_FALSE = 0,
  /* At once. */
  QWEN_EARLY_STOPPING_TRUE = 1,
  /* When no beam can become better. */
  QWEN_EARLY_STOPPING_NEVER = 2
};

/* A beam search. docs/beams.md explains the members and has their ranges. */
typedef struct qwen_beams {
  uint32_t size;
  /* A QWEN_EARLY_STOPPING number. */
  int32_t early_stopping;
  int64_t num_beams;
  /* 0: 1. */
  int64_t num_beam_groups;
  double diversity_penalty;
  /* 1 is usual; 0 does not divide. */
  double length_penalty;
  /* Number of answers. 0: 1. */
  int64_t answers;
} qwen_beams;

/* An answer of a beam search. */
typedef struct qwen_beam_answer {
  uint32_t size;
  double score;
  /* Its tokens, with the one that ended it, and the logs of their
     probabilities. */
  const int32_t *ids;
  const float *logprobs;
  size_t count;
} qwen_beam_answer;

/* A prompt and how to answer it. The functions are called on the scheduler's
   thread, with `user`, and must not block. Each may be NULL. What they get is
   valid during the call. */
typedef struct qwen_request {
  uint32_t size;
  /* Requests of a higher priority come first. */
  int32_t priority;
  const int32_t *prompt;
  size_t prompt_size;
  /* NULL: the options that the model's authors recommend. */
  const qwen_sampling *sampling;
  /* See qwen_sampler_new. */
  uint64_t answer;
  /* Maximum number of drawn tokens. 0 only runs the prompt; a negative number
     is as many as the context has. */
  int64_t max_tokens;
  /* Tokens that end the answer. */
  const int32_t *stop_tokens;
  size_t stop_count;
  /* Only requests with the same salt share pages. */
  uint64_t salt;
  /* A number of tokens of the prompt that later prompts will begin with, such
     as those that qwen_encode_chat gives with add_generation_prompt false. A
     model with fixed state gets a snapshot there. 0: unknown. */
  int64_t snapshot_at;
  /* Not 0: events have logprobs, and the top_logprobs most likely tokens. */
  int32_t logprobs;
  int32_t top_logprobs;
  /* Not 0: pass the tokens of the prompt, from the second on, to on_token. */
  int32_t score_prompt;
  void *user;
  /* Receives the hidden values of the last token of the prompt. Nothing is
     drawn then. */
  void (*on_hidden)(void *user, const float *values, size_t count);
  /* Receives the logits of the last token of the prompt, or the scores of a
     model that has "labels". Nothing is drawn then. */
  void (*on_logits)(void *user, const float *values, size_t count);
  /* Called before each draw. Returns the id that the answer gets, or a negative
     number to let the sampler draw. */
  int32_t (*on_draw)(void *user, const qwen_draw *draw);
  /* Receives each token once, in order. Returns 0 to end the answer. */
  int32_t (*on_token)(void *user, const qwen_token_event *event);
  /* Called after each step that ran a part of the prompt; when all of it has
     run, before the first draw. */
  void (*on_progress)(void *user, const qwen_progress *progress);
  /* Called once, after all other functions. */
  void (*on_end)(void *user, const qwen_ending *ending);
  /* A beam search in place of draws, of as many sequences of the model as it
     has beams; NULL: none. It excludes on_hidden, on_logits, on_draw and
     top_logprobs; on_token gets tokens of the prompt only. */
  const qwen_beams *beams;
  /* Receives each answer of a beam search that was neither cancelled nor failed
     before on_end, best first. */
  void (*on_answer)(void *user, const qwen_beam_answer *answer);
} qwen_request;

/* What a scheduler does now, and sums since its start. */
typedef struct qwen_counts {
  uint32_t size;
  int64_t waiting;
  int64_t running;
  int64_t free_pages;
  int64_t steps;
  int64_t prompt_tokens;
  int64_t cached_tokens;
  int64_t drawn_tokens;
  int64_t preemptions;
} qwen_counts;

/* Starts a scheduler. It answers as many requests at once as the model has
   sequences (qwen_options). `options` may be NULL. */
qwen_scheduler *qwen_scheduler_new(qwen_model *model,
                                   const qwen_scheduler_options *options);

/* Cancels all requests and ends the scheduler. Free it before the model, and
   not in a function of a request. NULL is allowed. */
void qwen_scheduler_free(qwen_scheduler *scheduler);

/* Adds a request. Returns its number, or a negative number if the queue is full
   or the request cannot run; none of its functions is called then. */
int64_t qwen_submit(qwen_scheduler *scheduler, const qwen_request *request);

/* Ends a request before its next step. Does nothing if it has ended. Returns 0,
   or a negative number if `scheduler` is NULL. */
int32_t qwen_cancel(qwen_scheduler *scheduler, int64_t id);

/* Writes the counts as of the last step. Returns 0, or a negative number. */
int32_t qwen_scheduler_counts(const qwen_scheduler *scheduler,
                              qwen_counts *counts);

#endif /* QWENRT_SCHEDULER_H */
