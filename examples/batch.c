/*===- batch.c - Several answers at once ---------------------------*- C
-*-===*\
|*
|* usage: batch MODEL COUNT TEXT...
|*
|* Continues each TEXT with up to COUNT tokens, by the model's own sampling
|* options with seed 1, and prints a line for each. A step runs one token of
|* every sequence that is not done, so that it reads the weights once. Each
|* answer is the one that its text alone would get.
|*
\*===----------------------------------------------------------------------===*/

#include <qwenrt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
  qwen_sampler *sampler;
  int32_t sequence;
  /* Tokens that have run. */
  int64_t length;
  int32_t *ids;
  long count;
  int done;
} answer;

static _Noreturn void fail(const char *what) {
  fprintf(stderr, "batch: %s: %s\n", what, qwen_last_error());
  exit(1);
}

static void *allocate(size_t count, size_t size) {
  void *memory = calloc(count ? count : 1, size);
  if (!memory) {
    fprintf(stderr, "batch: out of memory\n");
    exit(1);
  }
  return memory;
}

/* Opens a sequence for `text` and appends its tokens to `tokens`, which has
   `size` of them and grows. Returns the new size. */
static size_t start(answer *of, qwen_model *model, const char *text,
                    qwen_token **tokens, size_t size) {
  qwen_sampling sampling = {.size = sizeof(sampling)};
  if (qwen_default_sampling(model, &sampling) < 0)
    fail("cannot sample");
  sampling.seed = 1;
  of->sampler = qwen_sampler_new(model, &sampling, 0);
  of->sequence = qwen_open_sequence(model);
  of->length =
      qwen_tokenize(model, text, strlen(text), QWEN_ALLOW_SPECIAL, NULL, 0);
  if (!of->sampler || of->sequence < 0 || of->length < 0)
    fail("cannot start an answer");
  if (of->length == 0) {
    fprintf(stderr, "batch: a text has no tokens\n");
    exit(1);
  }
  int32_t *prompt = allocate(of->length, sizeof(*prompt));
  qwen_tokenize(model, text, strlen(text), QWEN_ALLOW_SPECIAL, prompt,
                of->length);
  *tokens = realloc(*tokens, (size + of->length) * sizeof(**tokens));
  if (!*tokens)
    exit(1);
  for (int64_t i = 0; i < of->length; ++i) {
    qwen_sampler_accept(of->sampler, prompt[i]);
    (*tokens)[size + i] =
        (qwen_token){prompt[i], of->sequence, i, i + 1 == of->length};
  }
  free(prompt);
  return size + of->length;
}

/* Draws the next token of an answer from its row of logits. */
static void draw(answer *of, const qwen_model *model, const float *row,
                 long most) {
  const int32_t id = qwen_sample(of->sampler, row, of->length);
  if (id < 0)
    fail("cannot sample");
  of->done = qwen_is_end(model, id);
  if (!of->done)
    of->ids[of->count++] = id;
  of->done |= of->count == most || of->length == qwen_context_size(model);
}

static void print(const answer *of, const qwen_model *model) {
  const int64_t size = qwen_detokenize(model, of->ids, of->count, NULL, 0);
  if (size < 0)
    fail("cannot write an answer");
  char *text = allocate(size, 1);
  qwen_detokenize(model, of->ids, of->count, text, size);
  fwrite(text, 1, size, stdout);
  putchar('\n');
  free(text);
}

int main(int argc, char **argv) {
  const long most = argc > 3 ? strtol(argv[2], NULL, 10) : 0;
  if (most <= 0) {
    fprintf(stderr, "usage: batch MODEL COUNT TEXT...\n");
    return 2;
  }
  const int size = argc - 3;
  const qwen_options options = {.size = sizeof(options), .sequences = size};
  qwen_model *model = qwen_load(argv[1], &options);
  if (!model)
    fail("cannot load the model");

  answer *answers = allocate(size, sizeof(*answers));
  float *logits =
      allocate((size_t)size * qwen_vocab_size(model), sizeof(float));
  qwen_token *tokens = NULL;
  size_t count = 0;
  for (int i = 0; i < size; ++i) {
    answers[i].ids = allocate(most, sizeof(int32_t));
    count = start(&answers[i], model, argv[3 + i], &tokens, count);
  }

  /* All prompts, then one token of each answer that is not done. */
  while (count > 0) {
    if (qwen_forward(model, tokens, count, logits) < 0)
      fail("cannot run a step");
    const float *row = logits;
    count = 0;
    for (answer *of = answers; of < answers + size; ++of) {
      if (of->done)
        continue;
      draw(of, model, row, most);
      row += qwen_vocab_size(model);
      if (!of->done)
        tokens[count++] =
            (qwen_token){of->ids[of->count - 1], of->sequence, of->length++, 1};
    }
  }
  for (int i = 0; i < size; ++i)
    print(&answers[i], model);
  if (qwen_finish_check(model) < 0)
    fail("the text may be wrong");

  for (int i = 0; i < size; ++i) {
    qwen_sampler_free(answers[i].sampler);
    free(answers[i].ids);
  }
  qwen_free(model);
  free(answers);
  free(logits);
  free(tokens);
  return 0;
}
