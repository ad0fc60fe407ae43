/*===- qwenrt_parser.h - The answers of a model -------------------*- C -*-===*\
|*
|* A part of qwenrt.h, which includes it.
|*
|* Divides the tokens of an answer into text, reasoning and calls of tools, and
|* ends its text at a stop string. The events, joined by their kinds, do not
|* depend on how the text is divided into tokens.
|*
\*===----------------------------------------------------------------------===*/

#ifndef QWENRT_PARSER_H
#define QWENRT_PARSER_H

typedef struct qwen_parser qwen_parser;

typedef struct qwen_parser_options {
  uint32_t size;
  /* Not 0: a stop string belongs to the text. Stop strings do not count in
     reasoning, in white space behind it, and in calls. */
  int32_t include_stop;
  /* Not 0: special tokens have text too. */
  int32_t keep_special;
  /* Not 0: reasoning is text, with its marks. */
  int32_t join_reasoning;
  /* The prompt, at whose end the reasoning may begin. */
  const int32_t *prompt;
  size_t prompt_size;
  /* Strings that end the text: UTF-8, ending with zero, not empty. */
  const char *const *stops;
  size_t stop_count;
  /* Tokens without text, such as qwen_end_tokens gives. */
  const int32_t *end_tokens;
  size_t end_count;
  /* Not 0: the reasoning has at most reasoning_budget tokens; see
     qwen_answer_state. */
  int32_t has_budget;
  int64_t reasoning_budget;
  /* The tools that the prompt has, as JSON that ends with zero: an array of
     OpenAI's form. NULL: nothing of the answer is a call. */
  const char *tools;
  /* The format in which the model calls them, "hermes" or "xml". NULL: the one
     that its chat template writes. */
  const char *tool_format;
  /* The last tokens of a reasoning that uses up its budget, at most as many as
     that. */
  const int32_t *budget_message;
  size_t budget_message_size;
  /* Not 0: the answer keeps to a grammar of qwen_grammar_new_calls, so that
     only what stands between the marks of a call is one. */
  int32_t has_call_grammar;
} qwen_parser_options;

/* Kinds of events. */
enum {
  QWEN_EVENT_TEXT = 0,
  QWEN_EVENT_REASONING = 1,
  /* The text is the name of the tool. */
  QWEN_EVENT_TOOL_BEGIN = 2,
  /* The text goes on with the arguments of the call, a JSON object. */
  QWEN_EVENT_TOOL_ARGUMENTS = 3,
  /* The call is whole: its arguments are JSON. A call without this must not
     run. */
  QWEN_EVENT_TOOL_END = 4,
  /* No text follows. The text is the stop string. */
  QWEN_EVENT_STOP_STRING = 5,
  /* The last event. */
  QWEN_EVENT_END = 6
};

typedef struct qwen_event {
  uint32_t size;
  /* A QWEN_EVENT number. */
  int32_t kind;
  /* Whole characters of UTF-8, without a terminating zero; valid until the next
     call with the parser. */
  const char *text;
  size_t text_size;
  /* Number of tokens that begin in the answer before this event ends, without
     the tokens of earlier events. A stop string has none; the end has the
     rest. */
  size_t token_count;
} qwen_event;

/* What a parser knows before the next token. */
typedef struct qwen_answer_state {
  uint32_t size;
  /* Not 0 if the next token belongs to the reasoning, unless it ends it. */
  int32_t in_reasoning;
  int64_t reasoning_tokens;
  /* The id that the answer must get next, because the reasoning has used up its
     budget; negative: any. */
  int32_t next_token;
  /* Not 0 if a stop string has ended the text. */
  int32_t stopped;
  /* Not 0 if the answer has called tools, and each call so far is whole. */
  int32_t has_calls;
} qwen_answer_state;

/* Makes a parser of one answer. `options` may be NULL. Free it before the
   model. Returns NULL also if there are tools and the model calls none. */
qwen_parser *qwen_parser_new(const qwen_model *model,
                             const qwen_parser_options *options);

/* Frees a parser. NULL is allowed. */
void qwen_parser_free(qwen_parser *parser);

/* Takes the next tokens of the answer. Returns 0, or a negative number if an id
   is invalid or the answer has ended. */
int32_t qwen_parser_feed(qwen_parser *parser, const int32_t *ids, size_t count);

/* Ends the answer. Does nothing if it has ended. */
int32_t qwen_parser_finish(qwen_parser *parser);

/* Writes the next event. Returns 1, 0 if there is none before more tokens, or a
   negative number. */
int32_t qwen_parser_event(qwen_parser *parser, qwen_event *event);

/* Returns 0, or a negative number. */
int32_t qwen_parser_state(const qwen_parser *parser, qwen_answer_state *state);

#endif /* QWENRT_PARSER_H */
