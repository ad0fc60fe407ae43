/*===- qwenrt.h - C interface of the runtime ----------------------*- C -*-===*\
|*
|* Loads a model compiled by qwen-opt and runs it. examples/embed.c uses
|* nothing else. Link libqwenrt.a, libQwenNumerics.a, libQwenABI.a, utf8proc,
|* pthread and the C++ library.
|*
|* Functions that can fail return a negative number or NULL, and
|* qwen_last_error() then says why in one line. So do all functions that get a
|* NULL where the comment does not allow it. A model may be used by one
|* thread at a time (it uses its own threads for the work); different models
|* by different threads at once.
|*
|* A model's threads stay in the process that loaded it. In a child of fork,
|* qwen_forward fails; qwen_free and whatever runs no tokens work. Load the
|* model in the child instead: the processes share the pages of its file.
|*
|* No signal handler is installed. A model's file is mapped: where another
|* program truncates it, or the disk fails, the next read raises SIGBUS. Replace
|* a file in use by renaming a new one to its name.
|*
\*===----------------------------------------------------------------------===*/

#ifndef QWENRT_H
#define QWENRT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model that is ready to run, with its tokenizer and KV cache. */
typedef struct qwen_model qwen_model;

/* Draws tokens for one sequence. */
typedef struct qwen_sampler qwen_sampler;

/* When a model's weights are checked for damage. */
enum {
  /* While the model runs, on a thread of low priority. When it finds damage,
     the next qwen_forward fails. A file that is larger than the free memory is
     not checked. */
  QWEN_CHECK_BACKGROUND = 0,
  /* In qwen_load, which fails where the weights are damaged. */
  QWEN_CHECK_NOW = 1,
  QWEN_CHECK_OFF = 2
};

/* Structs of options begin with `size`: sizeof of the struct. Where it is 0, as
   in {0}, all options have their defaults. Any other size is an error. */

typedef struct qwen_options {
  uint32_t size;
  /* At most 1024. 0: one for each physical performance core that the process
     may use. No more are started than it may use physical cores. */
  int32_t threads;
  /* Sequences that can be open at once; 0: one. */
  int32_t sequences;
  /* QWEN_CHECK_BACKGROUND (0), QWEN_CHECK_NOW or QWEN_CHECK_OFF. */
  int32_t check;
  /* Pages of 64 positions in the KV cache; 0: enough for all sequences at full
     context. Memory is taken as pages are first used. */
  int64_t kv_pages;
} qwen_options;

/* One token to run. */
typedef struct qwen_token {
  int32_t id;
  /* From qwen_open_sequence. */
  int32_t sequence;
  /* Its position: how many tokens the sequence has before it. */
  int64_t position;
  /* Not 0 where its logits are wanted. */
  int32_t want_logits;
} qwen_token;

/* The default of all of them is what qwen_default_sampling returns. */
typedef struct qwen_sampling {
  uint32_t size;
  /* 0: always the most likely token. */
  float temperature;
  /* Tokens kept; 0 keeps all. */
  int64_t top_k;
  /* Share of the probability that is kept, in (0, 1]. */
  double top_p;
  /* Least probability kept, as a share of the greatest one. */
  double min_p;
  /* Penalty for tokens already seen; 1 disables it. */
  float repetition_penalty;
  uint64_t seed;
} qwen_sampling;

/* Why the last call of this thread failed: one line, valid until the next
   failure. Never NULL. */
const char *qwen_last_error(void);

/* The version of this library, such as "0.1". */
const char *qwen_version(void);

/* Loads a compiled model. `options` may be NULL: all have their defaults.
   Returns NULL where the file is no artifact of this version, is
   damaged, or is for a processor with features that this one lacks. Run only
   artifacts that you trust: they hold machine code. */
qwen_model *qwen_load(const char *path, const qwen_options *options);

/* Frees a model. All its samplers must be freed before. NULL is allowed. */
void qwen_free(qwen_model *model);

/* Checks the weights that the check in the background has not reached yet. Call
   it before the program ends, so that no answer of damaged weights ends as a
   good one. Returns 0, or a negative number where they are damaged. */
int32_t qwen_finish_check(qwen_model *model);

/* Floats in a row of logits. Ids are 0 .. qwen_vocab_size() - 1. */
int32_t qwen_vocab_size(const qwen_model *model);

/* Positions that a sequence can have. */
int64_t qwen_context_size(const qwen_model *model);

/* 1 where the model's answers end with `id`, else 0. */
int32_t qwen_is_end(const qwen_model *model, int32_t id);

/* Writes the ids of `size` bytes of UTF-8 text to ids[0 .. capacity - 1] and
   returns how many ids the text has, which may be more than `capacity` (then
   only that many are written). `ids` may be NULL where `capacity` is 0, and
   `text` where `size` is. Negative where the model has no tokenizer. */
int64_t qwen_tokenize(const qwen_model *model, const char *text, size_t size,
                      int32_t *ids, size_t capacity);

/* Writes the bytes of ids to text[0 .. capacity - 1], without a terminating
   zero, and returns how many bytes they have. A character may be spread over
   several ids. `text` may be NULL where `capacity` is 0, and `ids` where
   `count` is. Negative where an id is no token. */
int64_t qwen_detokenize(const qwen_model *model, const int32_t *ids,
                        size_t count, char *text, size_t capacity);

/* Opens an empty sequence and returns its number, negative where all are
   open. */
int32_t qwen_open_sequence(qwen_model *model);

/* Opens a sequence that begins as `sequence` is now, and returns its number.
   Pages of the KV cache that are full are shared, so that a prefix runs once
   for all who continue it. Negative where all sequences are open or no page is
   left for a copy of the last one. */
int32_t qwen_branch_sequence(qwen_model *model, int32_t sequence);

/* Gives back a sequence and its part of the KV cache. */
int32_t qwen_close_sequence(qwen_model *model, int32_t sequence);

/* Forgets the positions at and past `length` of a sequence. */
int32_t qwen_truncate_sequence(qwen_model *model, int32_t sequence,
                               int64_t length);

/* Runs tokens of any number of open sequences; those of one sequence in the
   order of their positions. Writes a row of qwen_vocab_size() floats to
   `logits` for each token that wants it, in the order of the tokens; `logits`
   may be NULL where none does, and `tokens` where `count` is 0. Results do not
   depend on how tokens are divided among calls. Returns 0, or a negative
   number where a token cannot run; the KV cache then has the positions of the
   part that ran before. */
int32_t qwen_forward(qwen_model *model, const qwen_token *tokens, size_t count,
                     float *logits);

/* What the model's authors recommend, with `size` set. For a NULL, all is 0. */
qwen_sampling qwen_default_sampling(const qwen_model *model);

/* `answer` is the number of this answer to its prompt: answers of different
   numbers are drawn independently. NULL where an option is out of range. */
qwen_sampler *qwen_sampler_new(const qwen_model *model,
                               const qwen_sampling *sampling, uint64_t answer);

/* Frees a sampler. NULL is allowed. */
void qwen_sampler_free(qwen_sampler *sampler);

/* Notes a token of the prompt for the repetition penalty. Tokens that were
   drawn are noted by qwen_sample. */
int32_t qwen_sampler_accept(qwen_sampler *sampler, int32_t id);

/* Draws the token at `position` of a sequence from the logits of the token
   before it, and returns its id. A token with the logit -INFINITY is never
   drawn. Negative where a logit is NaN or +INFINITY, or no token is left. */
int32_t qwen_sample(qwen_sampler *sampler, const float *logits,
                    int64_t position);

#ifdef __cplusplus
}
#endif

#endif /* QWENRT_H */
