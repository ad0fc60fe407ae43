/*===- qwenrt.h - C interface of the runtime ----------------------*- C -*-===*\
|*
|* Loads a model compiled by qwen-opt and runs it. The programs in examples use
|* nothing else. Link libqwenrt.so, or libqwenrt.a, libQwenGrammar.a,
|* libQwenJinja.a, libQwenText.a, libQwenNumerics.a, libQwenABI.a,
|* libQwenSupport.a, utf8proc, pthread and the C++ library, and for
|* qwen_grammar_new libqwen_llguidance.a.
|*
|* A function that fails returns a QWEN_ERROR number, which is negative, or
|* NULL; qwen_last_error() then gives the reason in one line. A NULL argument is
|* an error unless the comment allows it.
|*
|* Only one thread may use a model at a time (the library has threads for the
|* work, which models with the same number of threads, or one qwen_threads,
|* share: their calls take turns), except that the functions which take a const
|* qwen_model may run on other threads at any time, but not qwen_failures,
|* qwen_describe_failure, qwen_pages and qwen_free_pages. Only one thread may
|* use a sampler or a parser at a time. Several threads may use different
|* models, samplers and parsers at once.
|*
|* The threads of a model belong to the process that loaded it. In a child of
|* fork, qwen_forward fails; qwen_free and all functions that run no tokens
|* work. Load the model in the child instead: the processes share the pages of
|* its file.
|*
|* A library runs programs that were compiled with the header of an older or a
|* newer one. A struct whose first member is `size` may get further members at
|* its end. A program sets `size` to sizeof the struct.
|* - A struct that the library reads may be smaller than the library's: what is
|*   missing has its default. It may be larger if the members that the library
|*   does not know are zero; else it is an error.
|* - Of a struct that a function fills, the library writes what fits. Members
|*   that it does not know become zero.
|* - A struct that a function of a request gets has the size of the library's. A
|*   program that may meet an older library compares it before it reads members
|*   that came later.
|* Structs without `size` stand in arrays and never change. Numbers of errors,
|* events and reasons may be added.
|*
|* The library installs no signal handler. It maps the model's file: if another
|* program truncates the file, or the disk fails, the next read raises SIGBUS.
|* To replace a file in use, rename a new one to its name.
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

/* Draws the tokens of one answer. */
typedef struct qwen_sampler qwen_sampler;

/* Threads that models share. */
typedef struct qwen_threads qwen_threads;

/* A chat template that takes the place of a model's. */
typedef struct qwen_template qwen_template;

/* Why a function failed, or a sequence stopped. */
enum {
  /* All that has no number of its own. */
  QWEN_ERROR_GENERAL = -1,
  /* A number was not finite while a token ran. */
  QWEN_ERROR_NOT_FINITE = -2,
  /* No page of the KV cache is free. */
  QWEN_ERROR_NO_PAGE = -3,
  /* A position is past the context. */
  QWEN_ERROR_PAST_CONTEXT = -4,
  /* A token id is not in the vocabulary. */
  QWEN_ERROR_INVALID_TOKEN = -5,
  /* The maximum number of sequences is open. */
  QWEN_ERROR_NO_SEQUENCE = -6,
  /* The system has no memory left. */
  QWEN_ERROR_NO_MEMORY = -7,
  /* The maximum number of requests waits. */
  QWEN_ERROR_QUEUE_FULL = -8,
  /* The function of qwen_set_progress ended qwen_forward. */
  QWEN_ERROR_CANCELLED = -9,
  /* A sequence has no snapshot of its fixed state where it needs one, or no
     more can be made. */
  QWEN_ERROR_NO_SNAPSHOT = -10
};

/* When the library compares a model's weights with their checksums. */
enum {
  /* While the model runs, on a thread of low priority. If it finds damage, the
     next qwen_forward fails. It skips a file that is larger than the free
     memory. */
  QWEN_CHECK_BACKGROUND = 0,
  /* In qwen_load, which fails if the weights are damaged. */
  QWEN_CHECK_NOW = 1,
  /* Never. */
  QWEN_CHECK_OFF = 2
};

/* How a scheduler drafts the next tokens of answers where that saves time
   (docs/speculation.md). It changes no answer. */
enum {
  QWEN_SPECULATE_OFF = 0,
  /* As the model allows. */
  QWEN_SPECULATE_AUTO = 1,
  /* With tokens that follow the same text earlier in the prompt or the
     answer. */
  QWEN_SPECULATE_LOOKUP = 2,
  /* With the checkpoint's draft head. */
  QWEN_SPECULATE_MTP = 3
};

/* In a struct of options, 0 is the default of each member. With size 0, as in
   {0}, every option has its default. */

typedef struct qwen_options {
  uint32_t size;
  /* Number of threads, at most 1024. The library starts at most one for each
     physical core that the process may use. 0: one for each such performance
     core. */
  int32_t threads;
  /* Maximum number of open sequences. 0: one. */
  int32_t sequences;
  /* QWEN_CHECK_BACKGROUND (0), QWEN_CHECK_NOW or QWEN_CHECK_OFF. */
  int32_t check;
  /* Pages of the KV cache, of 64 positions each. 0: enough for all sequences at
     full context. A page takes memory from its first use on. */
  int64_t kv_pages;
  /* Maximum memory in bytes of snapshots: copies of the fixed state of
     sequences (the manifest's "caches"), which a scheduler takes. 0: 1 GiB;
     negative: no snapshots. A snapshot takes memory from its first use on. */
  int64_t snapshot_bytes;
  /* Positions from one snapshot of a sequence to the next. 0: 1024. */
  int64_t snapshot_every;
  /* Maximum number of tokens in one call of the model's code, which changes no
     result. 0: the "tokens" of the manifest's "limits". */
  int32_t piece;
  /* 1: lock the weights in memory, so that they are never paged out. */
  int32_t lock;
  /* Maximum memory in bytes of all models of the process. The last one that is
     set counts. 0: as before; at first what the control group allows, or the
     memory of the machine. A model takes what the models before it have left,
     with fewer pages and snapshots if that is little, and fails to load if it
     is too little. */
  int64_t max_memory;
  /* The threads of the model, in place of `threads`. NULL: those of the loaded
     models with the same number of threads, or new ones. */
  const qwen_threads *pool;
  /* A chat template in place of the checkpoint's, in Jinja, ending with zero.
     NULL or "": the checkpoint's. */
  const char *chat_template;
  /* A QWEN_SPECULATE number. */
  int32_t speculate;
  /* The path of a smaller compiled model, ending with zero, which drafts where
     `speculate` is QWEN_SPECULATE_AUTO. Its tokens are the same. NULL or "":
     none. */
  const char *draft_model;
} qwen_options;

/* Flags of the functions that convert text to ids. */
enum {
  /* Special tokens in the text count, such as <|im_end|>. Without it they are
     ordinary text. */
  QWEN_ALLOW_SPECIAL = 1,
  /* The prompt ends with the content of the last message, which the answer
     continues. */
  QWEN_CONTINUE_MESSAGE = 2
};

/* The row that qwen_forward writes for a token. */
enum {
  QWEN_WANT_NOTHING = 0,
  /* Logits: qwen_vocab_size() floats. */
  QWEN_WANT_LOGITS = 1,
  /* Hidden values, after the last norm: qwen_hidden_size() floats. */
  QWEN_WANT_HIDDEN = 2
};

/* One token to run. */
typedef struct qwen_token {
  int32_t id;
  /* A number from qwen_open_sequence or qwen_branch_sequence. */
  int32_t sequence;
  /* The number of tokens before it in the sequence. */
  int64_t position;
  /* A QWEN_WANT number. */
  int32_t want;
} qwen_token;

/* A sequence that stopped in qwen_forward. */
typedef struct qwen_failure {
  int32_t sequence;
  /* QWEN_ERROR_NOT_FINITE, _NO_PAGE, _PAST_CONTEXT, _INVALID_TOKEN or
     _CANCELLED. */
  int32_t error;
  /* The position of the token that did not run. */
  int64_t position;
} qwen_failure;

/* A number that is added to the logit of a token. */
typedef struct qwen_bias {
  int32_t id;
  float bias;
} qwen_bias;

/* Options of a sampler. The default of each member is what
   qwen_default_sampling writes: the option that the model's authors
   recommend. */
typedef struct qwen_sampling {
  uint32_t size;
  /* 0 always takes the most likely token. */
  float temperature;
  /* Sample from the top_k most likely tokens; 0 keeps all. */
  int64_t top_k;
  /* Sample from the most likely tokens that together have this probability, in
     (0, 1]. */
  double top_p;
  /* Skip tokens below this fraction of the highest probability. */
  double min_p;
  /* Penalty for tokens already seen: divides their positive logits and
     multiplies the others; 1 disables it. */
  float repetition_penalty;
  /* The penalty is subtracted from the logit of a token for each time that the
     answer has it. */
  float frequency_penalty;
  /* The penalty is subtracted once from the logit of a token that the answer
     has. */
  float presence_penalty;
  /* Number of tokens before which no token of qwen_is_end or of stop_tokens
     ends the answer. */
  int64_t min_tokens;
  /* Added to the logits of tokens. logit_bias may be NULL if the count is 0. */
  const qwen_bias *logit_bias;
  size_t logit_bias_count;
  /* Seed of the random numbers. */
  uint64_t seed;
  /* docs/sampling.md explains these. */
  double top_n_sigma;
  double top_h;
  double typical_p;
  double epsilon_cutoff;
  double eta_cutoff;
  double xtc_probability;
  double xtc_threshold;
  int64_t no_repeat_ngram_size;
  int64_t exponential_decay_start;
  double exponential_decay_factor;
  float dynatemp_range;
  double dynatemp_exponent;
  int64_t mirostat;
  double mirostat_tau;
  double mirostat_eta;
  double dry_multiplier;
  double dry_base;
  int64_t dry_allowed_length;
  int64_t dry_penalty_last_n;
  /* Texts that DRY does not look past; NULL for newline, colon, quotation mark
     and asterisk. */
  const char *const *dry_sequence_breakers;
  size_t dry_sequence_breaker_count;
  /* Texts that the answer must not contain. bad_words may be NULL if the count
     is 0. */
  const char *const *bad_words;
  size_t bad_word_count;
  /* Names of the samplers, in their order; others are off. NULL for the usual
     ones. */
  const char *const *samplers;
  size_t sampler_count;
} qwen_sampling;

/* The error of the last failed call of this thread: one line, valid until the
   next failure. Never NULL. */
const char *qwen_last_error(void);

/* The version of this library, such as "0.1". */
const char *qwen_version(void);

/* Starts threads for several models, whose calls take turns: together they use
   no more cores than one of them. `threads` is as in qwen_options. Returns NULL
   if the system has no thread left. */
qwen_threads *qwen_threads_new(int32_t threads);

/* Frees threads when no model uses them any more. NULL is allowed. */
void qwen_threads_free(qwen_threads *threads);

/* Loads a compiled model. `options` may be NULL; then every option has its
   default. Returns NULL if the file is not an artifact of this version, is
   damaged, or needs features that this processor lacks. Load only artifacts
   that you trust: they contain machine code. */
qwen_model *qwen_load(const char *path, const qwen_options *options);

/* Frees a model. Free all its samplers first. NULL is allowed. */
void qwen_free(qwen_model *model);

/* Checks the weights that the background check has not reached yet. Call it
   before the program ends, to detect an answer of damaged weights. Returns 0,
   or a negative number if weights are damaged. */
int32_t qwen_finish_check(qwen_model *model);

/* Number of floats in a row of logits. Ids are 0 .. qwen_vocab_size() - 1. */
int32_t qwen_vocab_size(const qwen_model *model);

/* Number of hidden values of a token. */
int32_t qwen_hidden_size(const qwen_model *model);

/* Maximum number of positions in a sequence. */
int64_t qwen_context_size(const qwen_model *model);

/* The manifest of the model (docs/artifact.md): architecture, shapes, formats,
   generation defaults and more, as a JSON object. Returns its number of bytes
   and writes at most `capacity` of them to `json`, which may be NULL if
   `capacity` is 0. */
int64_t qwen_model_info(const qwen_model *model, char *json, size_t capacity);

/* The id of the added token with this name, such as "<|im_end|>". Returns a
   negative number if there is none. */
int32_t qwen_token_id(const qwen_model *model, const char *name);

/* 1 if `id` ends an answer of the model, else 0. */
int32_t qwen_is_end(const qwen_model *model, int32_t id);

/* The ids that end an answer. If `chat` is not 0, also those that end a turn of
   a chat, which the configurations of base models lack. Returns their number
   and writes at most `capacity` of them to `ids`, which may be NULL if
   `capacity` is 0. Returns a negative number if `chat` is not 0 and the model
   has no chat template. */
int64_t qwen_end_tokens(const qwen_model *model, int32_t chat, int32_t *ids,
                        size_t capacity);

/* Converts `size` bytes of UTF-8 text to ids. `flags` is 0 or
   QWEN_ALLOW_SPECIAL. Returns the number of ids and writes at most `capacity`
   of them to `ids`. `ids` may be NULL if `capacity` is 0, `text` may be NULL if
   `size` is 0. Returns a negative number if the model has no tokenizer. */
int64_t qwen_tokenize(const qwen_model *model, const char *text, size_t size,
                      int32_t flags, int32_t *ids, size_t capacity);

/* Renders the model's chat template. Special tokens in the text of messages
   look like those of the template; qwen_encode_chat knows them apart. `json` is
   an object of `size` bytes with the template's variables: "messages",
   optionally "tools", "enable_thinking" and others. add_generation_prompt is
   true unless it is given. Returns the number of bytes of the prompt and writes
   at most `capacity` of them to `text`, without a terminating zero. Returns a
   negative number if the model has no template or the template fails. */
int64_t qwen_render_chat(const qwen_model *model, const char *json, size_t size,
                         char *text, size_t capacity);

/* Converts messages to ids by the model's chat template. `json` is as in
   qwen_render_chat. `flags` are QWEN_ALLOW_SPECIAL, without which text of
   `json` never becomes a special token, and QWEN_CONTINUE_MESSAGE. Returns the
   number of ids and writes at most `capacity` of them to `ids`, which may be
   NULL if `capacity` is 0. Returns a negative number as qwen_render_chat
   does. */
int64_t qwen_encode_chat(const qwen_model *model, const char *json, size_t size,
                         int32_t flags, int32_t *ids, size_t capacity);

/* Writes `json`, an object as in qwen_render_chat, with its "messages" as the
   model's chat template takes them. Those may have system messages anywhere,
   and there may be none; each has a "role" and a "content", which is a string.
   The system messages at the front become one, and where the template does not
   write a later one, it becomes a message of the user, with its text between
   <system> and </system>. An empty message of the user is added where the
   template needs one. Arguments and result are those of qwen_render_chat. */
int64_t qwen_chat_turns(const qwen_model *model, const char *json, size_t size,
                        char *text, size_t capacity);

/* Reads `size` bytes of a chat template in Jinja, for prompts of this model.
   Returns NULL if it is not supported or the model has no tokenizer. Free it
   before the model. Any number of threads may use it. */
qwen_template *qwen_template_new(const qwen_model *model, const char *text,
                                 size_t size);

/* Frees a template. NULL is allowed. */
void qwen_template_free(qwen_template *chat_template);

/* The same as qwen_render_chat and qwen_encode_chat, by this template. */
int64_t qwen_template_render(const qwen_template *chat_template,
                             const char *json, size_t size, char *text,
                             size_t capacity);
int64_t qwen_template_encode(const qwen_template *chat_template,
                             const char *json, size_t size, int32_t flags,
                             int32_t *ids, size_t capacity);

/* Converts a text that is embedded to ids, with the token that the checkpoint
   appends. The hidden values of the last one make the embedding. Arguments and
   result are those of qwen_tokenize. */
int64_t qwen_encode_embedding(const qwen_model *model, const char *text,
                              size_t size, int32_t *ids, size_t capacity);

/* Writes the embedding, of length 1, that the first `count` hidden values of a
   row make. Both may be the same memory. */
int32_t qwen_embedding(const float *hidden, size_t count, float *embedding);

/* Converts a question to a reranker to ids: whether `document` answers `query`.
   `instruction` may be NULL. The texts are UTF-8 and end with zero. The logits
   (or scores) of the last id make the score. Returns the number of ids and
   writes at most `capacity` of them. */
int64_t qwen_encode_rerank(const qwen_model *model, const char *instruction,
                           const char *query, const char *document,
                           int32_t *ids, size_t capacity);

/* Writes the score that a row of logits (or scores) makes: the probability that
   the document answers the query. Returns 0, or a negative number if the model
   cannot rerank. */
int32_t qwen_rerank_score(const qwen_model *model, const float *row,
                          float *score);

/* Converts `count` ids to bytes. Returns the number of bytes and writes at most
   `capacity` of them to `text`, without a terminating zero. Several ids may
   form one character. `text` may be NULL if `capacity` is 0, `ids` may be NULL
   if `count` is 0. Returns a negative number if an id is invalid. */
int64_t qwen_detokenize(const qwen_model *model, const int32_t *ids,
                        size_t count, char *text, size_t capacity);

/* Opens an empty sequence. Returns its number, or a negative number if the
   maximum number of sequences is open. */
int32_t qwen_open_sequence(qwen_model *model);

/* Opens a copy of the first `length` positions of `sequence` and returns its
   number. Both share the full pages of the KV cache, so that a common prefix
   runs only once. Returns a negative number if the sequence is shorter, if the
   maximum number of sequences is open, or if no page is left to copy the last
   one. Of a model with fixed state (the manifest's "caches"), only all
   positions can be copied, or up to "step_back" (the manifest's "limits") fewer
   that are still there; else returns QWEN_ERROR_NO_SNAPSHOT. The states of
   these positions take memory for each sequence. Sequences that are opened when
   it is short, or beside 4 others where `speculate` of qwen_options has drafts,
   have the last state only. */
int32_t qwen_branch_sequence(qwen_model *model, int32_t sequence,
                             int64_t length);

/* Closes a sequence and frees its part of the KV cache. Returns 0, or a
   negative number if the sequence is not open. */
int32_t qwen_close_sequence(qwen_model *model, int32_t sequence);

/* Removes the positions from `length` on from a sequence. Returns 0, or a
   negative number if an argument is invalid. Of a model with fixed state, only
   all positions can be removed, or the last ones, up to "step_back"; else
   returns QWEN_ERROR_NO_SNAPSHOT. */
int32_t qwen_truncate_sequence(qwen_model *model, int32_t sequence,
                               int64_t length);

/* Runs tokens of any number of open sequences. The tokens of one sequence must
   be in the order of their positions. Writes the rows that tokens want to
   `rows`, one after another in the order of the tokens. `rows` may be NULL if
   no token wants a row, `tokens` may be NULL if `count` is 0. Splitting tokens
   over several calls does not change the results.

   A sequence stops at its first token that cannot run, and keeps the positions
   before it. (With QWEN_ERROR_NOT_FINITE, a sequence of a model with fixed
   state keeps none, or those to which it can step back.) The other sequences
   run as without it. Rows of tokens that did not run are not written. Returns
   0, or the error of a sequence that stopped (qwen_failures lists all). Runs
   nothing and returns a negative number if a sequence is not open, if a
   position is not the next one of its sequence, if a token wants a row that the
   model does not have, or if the weights are damaged. */
int32_t qwen_forward(qwen_model *model, const qwen_token *tokens, size_t count,
                     float *rows);

/* Makes qwen_forward call `progress` from time to time, with `user` and the
   number of tokens that are done. If it returns 0, all sequences with tokens
   left stop. NULL ends this. Returns 0, or a negative number if `model` is
   NULL. */
int32_t qwen_set_progress(qwen_model *model,
                          int32_t (*progress)(void *user, size_t done),
                          void *user);

/* Returns the number of sequences that stopped in the last qwen_forward, and
   writes at most `capacity` of them to `failures`, which may be NULL if
   `capacity` is 0. */
int64_t qwen_failures(const qwen_model *model, qwen_failure *failures,
                      size_t capacity);

/* Writes the reason of failure `index` of the last qwen_forward, one line
   without a terminating zero, and at most `capacity` bytes of it. Returns its
   number of bytes. */
int64_t qwen_describe_failure(const qwen_model *model, size_t index, char *text,
                              size_t capacity);

/* Number of pages of the KV cache, of 64 positions each, and number of those
   that no sequence holds. */
int64_t qwen_pages(const qwen_model *model);
int64_t qwen_free_pages(const qwen_model *model);

/* Writes the sampling options that the model's authors recommend. Returns 0, or
   a negative number. */
int32_t qwen_default_sampling(const qwen_model *model, qwen_sampling *sampling);

/* Makes a sampler. `sampling` may be NULL; then every option has its default.
   `answer` numbers the answers to one prompt: samplers with different numbers
   draw independently. Returns NULL if an option is out of range. */
qwen_sampler *qwen_sampler_new(const qwen_model *model,
                               const qwen_sampling *sampling, uint64_t answer);

/* A sampler that has seen the same tokens. Returns NULL if memory is short. */
qwen_sampler *qwen_sampler_copy(const qwen_sampler *sampler);

/* Frees a sampler. NULL is allowed. */
void qwen_sampler_free(qwen_sampler *sampler);

/* Marks a token of the prompt as already seen, for the repetition penalty.
   qwen_sample marks the tokens that it draws. Returns 0, or a negative number
   if the id is invalid. */
int32_t qwen_sampler_accept(qwen_sampler *sampler, int32_t id);

/* Draws the token at `position` of a sequence from the logits of the token
   before it, and returns its id. Never draws a token with the logit -INFINITY.
   Returns a negative number if a logit is NaN or +INFINITY, or if no token is
   left. */
int32_t qwen_sample(qwen_sampler *sampler, const float *logits,
                    int64_t position);

/* Writes the logs of the probabilities of `count` tokens, computed from a row
   of raw logits. Returns 0, or a negative number if an id is invalid. */
int32_t qwen_logprobs(const qwen_model *model, const float *logits,
                      const int32_t *ids, size_t count, float *logprobs);

/* The same in double precision. qwen_logprobs writes the nearest floats, and
   `qwen-run perplexity` prints their mean. */
int32_t qwen_double_logprobs(const qwen_model *model, const float *logits,
                             const int32_t *ids, size_t count,
                             double *logprobs);

/* Writes the ids of the `capacity` greatest logits, in descending order; of
   equals, the smallest id is first. Returns their number, which is less if the
   vocabulary is smaller. */
int64_t qwen_top_tokens(const qwen_model *model, const float *logits,
                        int32_t *ids, size_t capacity);

#include "qwenrt_scheduler.h"

#include "qwenrt_parser.h"

#include "qwenrt_weights.h"

#ifdef __cplusplus
}
#endif

#endif /* QWENRT_H */
