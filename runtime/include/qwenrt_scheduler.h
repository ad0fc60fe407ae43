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
  /* The raw logits of the token before it, qwen_vocab_size() floats. Tokens
     that may not come (grammar, allowed_tokens) have -INFINITY. */
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

/* Says which texts an answer may have (docs/structured-output.md). */
typedef struct qwen_grammar qwen_grammar;

/* The languages of grammars. */
enum {
  /* A JSON schema, an object or true. The answer is a document of it, on one
     line. */
  QWEN_GRAMMAR_JSON_SCHEMA = 0,
  /* A regular expression, in Rust's syntax, of the whole answer. */
  QWEN_GRAMMAR_REGEX = 1,
  /* A JSON array of strings, none of them empty. The answer is one of them. */
  QWEN_GRAMMAR_CHOICE = 2,
  /* A grammar in llguidance's form of Lark, or in GBNF, which llama.cpp has. */
  QWEN_GRAMMAR_LARK = 3
};

/* Which calls of tools an answer has. */
typedef struct qwen_call_rules {
  uint32_t size;
  /* Not 0: the answer is calls without other text, at least one. */
  int32_t is_required;
  /* Not 0: it has at most one. */
  int32_t is_single;
  /* The tools that it may call and the format of calls, as in
     qwen_parser_options. */
  const char *tools;
  const char *tool_format;
} qwen_call_rules;

/* The updates that a request has. */
enum {
  /* Tokens, the answers of a beam search, and the end. */
  QWEN_UPDATES_ANSWER = 1,
  /* The same, and the progress of the prompt. */
  QWEN_UPDATES_PROGRESS = 2,
  /* The same as QWEN_UPDATES_ANSWER, but all appear with the end, so that no
     step wakes a reader before. */
  QWEN_UPDATES_AT_END = 4
};

/* Kinds of updates, and what `data` points to. */
enum {
  /* qwen_token_event. */
  QWEN_UPDATE_TOKEN = 0,
  /* qwen_progress. */
  QWEN_UPDATE_PROGRESS = 1,
  /* qwen_beam_answer. */
  QWEN_UPDATE_ANSWER = 2,
  /* qwen_ending: the last update of its request. */
  QWEN_UPDATE_END = 3
};

/* What has happened to a request. */
typedef struct qwen_update {
  /* The number that qwen_submit returns, and the request's `user`. */
  int64_t request;
  void *user;
  /* A struct by `kind`; valid until the thread that got the update calls
     qwen_scheduler_next again or ends. */
  const void *data;
  /* A QWEN_UPDATE number. */
  int32_t kind;
} qwen_update;

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
  /* Receives the hidden values of the last token of the prompt, or of the last
     row_count tokens. Nothing is drawn then. */
  void (*on_hidden)(void *user, const float *values, size_t count);
  /* Receives the logits of the same tokens, or the scores of a model that has
     "labels". Nothing is drawn then. */
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
     has beams; NULL: none. It excludes on_hidden, on_logits, want_rows,
     on_draw, grammar and top_logprobs, and on_token gets no drawn token. */
  const qwen_beams *beams;
  /* Receives each answer of a beam search that was neither cancelled nor failed
     before on_end, best first. */
  void (*on_answer)(void *user, const qwen_beam_answer *answer);
  /* A sum of QWEN_UPDATES numbers. Not 0: what on_token, on_progress, on_answer
     and on_end would get comes as updates from qwen_scheduler_next instead. All
     but on_end must be NULL, and it is called before its update appears. */
  int32_t updates;
  /* The channel of the updates: any number. */
  int64_t channel;
  /* Number of last tokens of the prompt whose rows on_hidden, on_logits or
     `rows` get, one after another. 0: 1; negative: all. */
  int64_t row_count;
  /* In place of on_hidden and on_logits: a QWEN_WANT number. The rows are
     written to `rows`, which has place for `rows_size` floats and must stay
     until the request has ended. */
  int32_t want_rows;
  /* Not 0: the answer may begin with reasoning, which the grammar says nothing
     of (unless the prompt has closed it). Of a model whose prompt begins the
     reasoning, this must be set. */
  int32_t grammar_after_reasoning;
  float *rows;
  size_t rows_size;
  /* A grammar of the same model, which the answer keeps to; NULL: none. It may
     be freed after qwen_submit. It excludes beams, bad_words and
     no_repeat_ngram_size. */
  const qwen_grammar *grammar;
  /* The tokens that may be drawn; NULL: all. This excludes beams and grammar.
   */
  const int32_t *allowed_tokens;
  size_t allowed_count;
  /* Not 0: the reasoning has at most reasoning_budget tokens, and ends then.
     This excludes beams and on_draw. */
  int32_t has_budget;
  int64_t reasoning_budget;
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

/* Makes a grammar from `size` bytes of text. Takes about a second at most, and
   as much more for the first grammar of a model, on the thread that calls: any
   number may do so, also while a scheduler runs. `kind` is a QWEN_GRAMMAR
   number. Free it before the model. Returns NULL if the text is no grammar, if
   it cannot be kept, or if this library was built without llguidance. */
qwen_grammar *qwen_grammar_new(const qwen_model *model, int32_t kind,
                               const char *text, size_t size);

/* Makes a grammar of the calls of tools in an answer. The arguments of a call
   are an object of the tool's schema; of a tool that is not "strict", without
   the keywords that cannot be kept. The rest is as in qwen_grammar_new. Returns
   NULL also if the model calls no tools, or if the schema of a strict tool
   cannot be kept. */
qwen_grammar *qwen_grammar_new_calls(const qwen_model *model,
                                     const qwen_call_rules *rules);

/* Frees a grammar. NULL is allowed. */
void qwen_grammar_free(qwen_grammar *grammar);

/* Starts a scheduler. It answers as many requests at once as the model has
   sequences (qwen_options). `options` may be NULL. */
qwen_scheduler *qwen_scheduler_new(qwen_model *model,
                                   const qwen_scheduler_options *options);

/* Cancels all requests and takes no more: qwen_submit then returns
   QWEN_ERROR_CANCELLED, and so does qwen_scheduler_next when it has given the
   updates that are left. Call this before qwen_scheduler_free if other threads
   use the scheduler, and wait for them in between. Returns 0, or a negative
   number if `scheduler` is NULL. */
int32_t qwen_scheduler_close(qwen_scheduler *scheduler);

/* Cancels all requests and ends the scheduler. Calls of qwen_scheduler_next
   that wait return QWEN_ERROR_CANCELLED; updates are lost. Free it before the
   model, and not in a function of a request. NULL is allowed. */
void qwen_scheduler_free(qwen_scheduler *scheduler);

/* Adds a request. Returns its number, or a negative number if the queue is full
   or the request cannot run; none of its functions is called then. A request
   with updates has a place until its end is read: QWEN_ERROR_QUEUE_FULL if as
   many as run and wait at most have one. */
int64_t qwen_submit(qwen_scheduler *scheduler, const qwen_request *request);

/* Ends a request before its next step. Does nothing if it has ended. Returns 0,
   or a negative number if `scheduler` is NULL. */
int32_t qwen_cancel(qwen_scheduler *scheduler, int64_t id);

/* Writes at most `capacity` updates of the requests of a channel to `updates`,
   in order. If there is none, waits for the next step that makes some, for
   at most `timeout` milliseconds; 0 does not wait, and a negative number waits
   without a limit. Any number of threads may read channels, and each update
   comes once. Returns the number of updates, 0 if the time is over, or a
   negative number.

   Nothing is dropped if nobody reads. A request has at most one update for each
   token and each beam of its answer, two for each token of its prompt, and its
   end. */
int64_t qwen_scheduler_next(qwen_scheduler *scheduler, int64_t channel,
                            qwen_update *updates, size_t capacity,
                            int64_t timeout);

/* Writes the counts as of the last step. Returns 0, or a negative number. */
int32_t qwen_scheduler_counts(const qwen_scheduler *scheduler,
                              qwen_counts *counts);

#endif /* QWENRT_SCHEDULER_H */
