/*===- embed.c - The C interface in one program -------------------*- C -*-===*\
|*
|* usage: embed MODEL TEXT [COUNT [chat]]
|*
|* Continues TEXT with the model's own sampling options, seed 1. With chat, TEXT
|* is {"messages": [{"role": ..., "content": ...}, ...]}, which it answers.
|*
\*===----------------------------------------------------------------------===*/

#include <qwenrt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void fail(const char *what) {
  fprintf(stderr, "embed: %s: %s\n", what, qwen_last_error());
  exit(1);
}

/* The number of ids of the prompt, of which it writes at most `capacity`. */
static int64_t encode(const qwen_model *model, const char *text, int chat,
                      int32_t *ids, size_t capacity) {
  const size_t size = strlen(text);
  return chat ? qwen_encode_chat(model, text, size, 0, ids, capacity)
              : qwen_tokenize(model, text, size, QWEN_ALLOW_SPECIAL, ids,
                              capacity);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: embed MODEL TEXT [COUNT [chat]]\n");
    return 2;
  }
  const char *text = argv[2];
  const long count = argc > 3 ? strtol(argv[3], NULL, 10) : 32;
  const int chat = argc > 4 && strcmp(argv[4], "chat") == 0;

  qwen_model *model = qwen_load(argv[1], NULL);
  if (!model)
    fail("cannot load the model");

  /* Ids of the prompt: how many, then which. */
  const int64_t prompt = encode(model, text, chat, NULL, 0);
  if (prompt < 0)
    fail("cannot read the text");
  if (prompt == 0 || prompt > qwen_context_size(model)) {
    fprintf(stderr, "embed: the text has %lld tokens\n", (long long)prompt);
    return 1;
  }
  int32_t *ids = malloc(prompt * sizeof(*ids));
  qwen_token *tokens = malloc(prompt * sizeof(*tokens));
  float *logits = malloc(qwen_vocab_size(model) * sizeof(*logits));
  if (!ids || !tokens || !logits) {
    fprintf(stderr, "embed: out of memory\n");
    exit(1);
  }
  encode(model, text, chat, ids, prompt);

  qwen_sampling sampling = {.size = sizeof(sampling)};
  if (qwen_default_sampling(model, &sampling) < 0)
    fail("cannot sample");
  sampling.seed = 1;
  qwen_sampler *sampler = qwen_sampler_new(model, &sampling, 0);
  if (!sampler)
    fail("cannot sample");

  /* The prompt in one call; the logits of its last token. */
  const int32_t sequence = qwen_open_sequence(model);
  for (int64_t i = 0; i < prompt; ++i) {
    qwen_sampler_accept(sampler, ids[i]);
    tokens[i] = (qwen_token){ids[i], sequence, i, i + 1 == prompt};
  }
  if (qwen_forward(model, tokens, prompt, logits) < 0)
    fail("cannot run the prompt");

  /* Then one token after the other. */
  for (long i = 0; i < count; ++i) {
    const int64_t position = prompt + i;
    const int32_t id = qwen_sample(sampler, logits, position);
    if (id < 0)
      fail("cannot sample");
    if (qwen_is_end(model, id))
      break;
    char bytes[512];
    const int64_t size = qwen_detokenize(model, &id, 1, bytes, sizeof(bytes));
    if (size < 0)
      fail("cannot write a token");
    fwrite(bytes, 1, size < 512 ? size : 512, stdout);
    fflush(stdout);
    if (position == qwen_context_size(model))
      break;
    const qwen_token next = {id, sequence, position, 1};
    if (qwen_forward(model, &next, 1, logits) < 0)
      fail("cannot run a token");
  }
  putchar('\n');
  if (qwen_finish_check(model) < 0)
    fail("the text may be wrong");

  qwen_close_sequence(model, sequence);
  qwen_sampler_free(sampler);
  qwen_free(model);
  free(logits);
  free(tokens);
  free(ids);
  return 0;
}
