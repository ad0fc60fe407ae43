//===- CApiParser.cpp - C interface of the parser of answers --------------===//

#include "CApiModel.h"
#include "CApiStruct.h"
#include "model/ToolFormat.h"
#include "text/AnswerParser.h"

#include "qwen/Support/Json.h"

#include <deque>
#include <utility>

using namespace qwen;
using namespace qwen::capi;

struct qwen_parser {
  qwen_parser(const qwen_model &model, std::span<const int32_t> prompt,
              AnswerOptions options)
      : tokenizer(model.tokenizer()),
        parser(tokenizer, &model.answerFormat(), prompt, std::move(options)) {}

  void add(AnswerEvents more) {
    std::ranges::move(more, std::back_inserter(events));
  }

  const Tokenizer &tokenizer;
  AnswerParser parser;
  std::deque<AnswerEvent> events;
  /// The event that the program has.
  AnswerEvent given = {};
  bool hasEnded = false;
};

static_assert(
    static_cast<int>(AnswerEventKind::Text) == QWEN_EVENT_TEXT &&
    static_cast<int>(AnswerEventKind::Reasoning) == QWEN_EVENT_REASONING &&
    static_cast<int>(AnswerEventKind::ToolCallBegin) == QWEN_EVENT_TOOL_BEGIN &&
    static_cast<int>(AnswerEventKind::ToolCallArguments) ==
        QWEN_EVENT_TOOL_ARGUMENTS &&
    static_cast<int>(AnswerEventKind::ToolCallEnd) == QWEN_EVENT_TOOL_END &&
    static_cast<int>(AnswerEventKind::StopString) == QWEN_EVENT_STOP_STRING &&
    static_cast<int>(AnswerEventKind::End) == QWEN_EVENT_END);

static AnswerOptions answerOptions(const qwen_parser_options &from) {
  if (from.prompt_size)
    needArgument("qwen_parser_new: prompt", from.prompt);
  if (from.stop_count)
    needArgument("qwen_parser_new: stops",
                 static_cast<const void *>(from.stops));
  if (from.end_count)
    needArgument("qwen_parser_new: end_tokens", from.end_tokens);
  AnswerOptions options{.includeStop = from.include_stop != 0,
                        .skipSpecial = from.keep_special == 0,
                        .splitReasoning = from.join_reasoning == 0};
  for (const char *stop : std::span(from.stops, from.stop_count)) {
    needArgument("qwen_parser_new: a stop string", stop);
    if (*stop == 0)
      throw Error("qwen_parser_new: a stop string is empty");
    options.stops.emplace_back(stop);
  }
  options.ends.assign(from.end_tokens, from.end_tokens + from.end_count);
  if (from.has_budget)
    options.reasoningBudget = from.reasoning_budget;
  if (from.budget_message_size)
    needArgument("qwen_parser_new: budget_message", from.budget_message);
  options.budgetMessage.assign(from.budget_message,
                               from.budget_message + from.budget_message_size);
  return options;
}

CallOptions capi::callOptionsOf(const char *function, const qwen_model &model,
                                const char *tools, const char *format) {
  if (!tools)
    return {};
  const std::string what = function + std::string(": tools");
  checkJson(tools, what, {});
  auto read = std::make_shared<Tools>(
      toolsOf(nlohmann::ordered_json::parse(tools), what));
  const std::string name = format ? format : "";
  if (!name.empty() && !findCallFormat(name))
    throw Error(function + std::string(": tool_format must be one of ") +
                callFormatNames());
  return {&findToolFormat(model.chatFormat(), name), std::move(read)};
}

qwen_parser *qwen_parser_new(const qwen_model *model,
                             const qwen_parser_options *options) {
  return with<qwen_parser *>(__func__, model, [&] {
    qwen_parser_options from = {};
    if (options)
      from = readStruct("qwen_parser_new: options", *options);
    AnswerOptions to = answerOptions(from);
    to.calls =
        callOptionsOf("qwen_parser_new", *model, from.tools, from.tool_format);
    if (from.has_call_grammar)
      to.calls.rules.emplace();
    return new qwen_parser(*model, {from.prompt, from.prompt_size},
                           std::move(to));
  });
}

void qwen_parser_free(qwen_parser *parser) { delete parser; }

int32_t qwen_parser_feed(qwen_parser *parser, const int32_t *ids,
                         size_t count) {
  return with<int32_t>(__func__, parser, [&](Need need) {
    need("ids", ids, count);
    if (parser->hasEnded)
      throw Error("qwen_parser_feed: the answer has ended");
    // Throws for an id that is no token.
    const std::span all(ids, count);
    parser->tokenizer.decode(all);
    for (int32_t id : all)
      parser->add(parser->parser.push(id));
    return 0;
  });
}

int32_t qwen_parser_finish(qwen_parser *parser) {
  return with<int32_t>(__func__, parser, [&] {
    if (!std::exchange(parser->hasEnded, true))
      parser->add(parser->parser.finish());
    return 0;
  });
}

int32_t qwen_parser_event(qwen_parser *parser, qwen_event *event) {
  return with<int32_t>(__func__, parser, [&](Need need) {
    need("event", event);
    if (parser->events.empty())
      return 0;
    checkSize("qwen_parser_event: event", event->size);
    parser->given = std::move(parser->events.front());
    parser->events.pop_front();
    const AnswerEvent &given = parser->given;
    writeStruct("qwen_parser_event: event",
                qwen_event{.size = sizeof(qwen_event),
                           .kind = static_cast<int32_t>(given.kind),
                           .text = given.text.c_str(),
                           .text_size = given.text.size(),
                           .token_count = given.tokens.size()},
                event);
    return 1;
  });
}

int32_t qwen_parser_state(const qwen_parser *parser, qwen_answer_state *state) {
  return with<int32_t>(__func__, parser, [&](Need need) {
    need("state", state);
    const AnswerParser &of = parser->parser;
    writeStruct("qwen_parser_state: state",
                qwen_answer_state{.size = sizeof(qwen_answer_state),
                                  .in_reasoning = of.isReasoning(),
                                  .reasoning_tokens = of.reasoningTokens(),
                                  .next_token = of.next().value_or(-1),
                                  .stopped = of.stop().has_value(),
                                  .has_calls = of.hasCalls()},
                state);
    return 0;
  });
}
