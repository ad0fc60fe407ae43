//===- ResponseAnswer.cpp - The answers of /v1/responses ------------------===//

#include "server/protocols/responses/ResponseAnswer.h"

#include "server/protocols/openai/OpenAi.h"
#include "server/protocols/responses/Sealed.h"

#include <chrono>
#include <iterator>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using responses::ResponseAnswer;

static constexpr const char *kCompleted = "completed",
                            *kIncomplete = "incomplete",
                            *kRunning = "in_progress";

namespace {
/// How items of a kind are written.
struct ItemWords {
  /// Of its id.
  const char *prefix;
  /// Of the events with its text.
  const char *delta, *done;
  /// The member of the last of these with the whole text.
  const char *whole;
};
} // namespace

static constexpr ItemWords kTextWords = {"msg_", "response.output_text.delta",
                                         "response.output_text.done", "text"};
static constexpr ItemWords kReasoningWords = {
    "rs_", "response.reasoning_text.delta", "response.reasoning_text.done",
    "text"};
static constexpr ItemWords kCallWords = {
    "fc_", "response.function_call_arguments.delta",
    "response.function_call_arguments.done", "arguments"};
static constexpr ItemWords kCustomWords = {
    "ctc_", "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done", "input"};

static const ItemWords &itemWords(ItemKind kind, bool isCustom) {
  switch (kind) {
  case ItemKind::Text:
    return kTextWords;
  case ItemKind::Reasoning:
    return kReasoningWords;
  case ItemKind::Call:
    break;
  }
  return isCustom ? kCustomWords : kCallWords;
}

ResponseAnswer::ResponseAnswer(const Service &service,
                               ResponseParameters parameters)
    : asked(std::move(parameters)), tokenizer(service.tokenizer),
      model(service.model()), id(randomId("resp_")),
      created(std::chrono::duration_cast<std::chrono::seconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count()) {}

//===----------------------------------------------------------------------===//
// Objects
//===----------------------------------------------------------------------===//

ordered_json
ResponseAnswer::logprobsOf(const std::vector<TokenRecord> &of) const {
  return asked.logprobs ? openai::tokenLogprobs(of, tokenizer)
                        : ordered_json::array();
}

ordered_json ResponseAnswer::partOf(const Item &item) const {
  if (item.kind == ItemKind::Reasoning)
    return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", ordered_json::array()},
          {"logprobs", logprobsOf(item.tokens)}};
}

ordered_json ResponseAnswer::itemOf(const Item &item) const {
  const char *const status = item.status ? item.status : kRunning;
  ordered_json object = {{"id", item.id}};
  if (item.kind == ItemKind::Call) {
    object["type"] = item.tool.isCustom ? "custom_tool_call" : "function_call";
    object["status"] = status;
    object["call_id"] = item.callId;
    object["name"] = item.tool.name;
    if (!item.tool.space.empty())
      object["namespace"] = item.tool.space;
    object[itemWords(item.kind, item.tool.isCustom).whole] = item.text;
    return object;
  }
  ordered_json content = ordered_json::array();
  if (item.status)
    content.push_back(partOf(item));
  object["type"] = item.kind == ItemKind::Text ? "message" : "reasoning";
  object["status"] = status;
  if (item.kind == ItemKind::Text)
    object["role"] = "assistant";
  else
    object["summary"] = ordered_json::array();
  object["content"] = std::move(content);
  if (item.kind == ItemKind::Reasoning && item.status && asked.sealsReasoning)
    object["encrypted_content"] = seal(item.text);
  return object;
}

ordered_json ResponseAnswer::usageOf() const {
  const Usage usage = generation->usage();
  // The cache keeps what a prompt has; nobody pays for it.
  return {{"input_tokens", usage.prompt},
          {"input_tokens_details",
           {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.drawn},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning}}},
          {"total_tokens", usage.prompt + usage.drawn}};
}

ordered_json ResponseAnswer::responseOf(const char *status) const {
  const AnswerParameters &parameters = task().parameters;
  const bool hasEnded = ended != Finish::None;
  const ordered_json sampling = describeSampling(parameters.sampling);
  ordered_json output = ordered_json::array();
  for (const Item &item : items)
    if (item.status)
      output.push_back(itemOf(item));
  ordered_json object = {
      {"id", id},
      {"object", "response"},
      {"created_at", created},
      {"status", status},
      {"background", false},
      {"error", failure},
      {"incomplete_details", nullptr},
      {"instructions", nullptr},
      {"max_output_tokens", nullptr},
      {"metadata", ordered_json::object()},
      {"model", model},
      {"output", std::move(output)},
      {"parallel_tool_calls", asked.toolChoice.isParallel},
      {"previous_response_id", nullptr},
      {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
      {"store", false},
      {"temperature", sampling["temperature"]},
      {"text", {{"format", {{"type", "text"}}}}},
      {"tool_choice", asked.choiceValue},
      {"tools", asked.tools},
      {"top_logprobs", parameters.topLogprobs},
      {"top_p", sampling["top_p"]},
      {"truncation", "disabled"},
      {"usage", hasEnded ? usageOf() : ordered_json()},
      {"x_seed", *parameters.seed}};
  if (ended == Finish::Length)
    object["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (asked.instructions)
    object["instructions"] = *asked.instructions;
  if (parameters.maxTokens)
    object["max_output_tokens"] = *parameters.maxTokens;
  object.update(asked.repeated);
  return object;
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

void ResponseAnswer::emit(const char *type, const ordered_json &members,
                          std::string &text) {
  if (!isEvents())
    return;
  ordered_json object = {{"type", type}, {"sequence_number", events++}};
  object.update(members);
  text += event(type, dump(object));
}

void ResponseAnswer::emitOfItem(const char *type, const ordered_json &members,
                                std::string &text) {
  const Item &item = items.back();
  ordered_json object = {{"item_id", item.id},
                         {"output_index", items.size() - 1}};
  if (item.kind != ItemKind::Call)
    object["content_index"] = 0;
  object.update(members);
  emit(type, object, text);
}

std::string ResponseAnswer::opening() {
  std::string text;
  for (const char *type : {"response.created", "response.in_progress"})
    emit(type, {{"response", responseOf(kRunning)}}, text);
  return text;
}

void ResponseAnswer::beginItem(const ItemDelta &part, std::string &text) {
  Item item{.kind = part.kind, .id = ""};
  if (part.kind == ItemKind::Call) {
    item.callId = "call_" + part.id;
    item.tool = asked.nameOf(part.name);
  }
  item.id = randomId(itemWords(item.kind, item.tool.isCustom).prefix);
  items.push_back(std::move(item));
  emit("response.output_item.added",
       {{"output_index", items.size() - 1}, {"item", itemOf(items.back())}},
       text);
  if (part.kind != ItemKind::Call)
    emitOfItem("response.content_part.added", {{"part", partOf(items.back())}},
               text);
}

void ResponseAnswer::addText(const std::string &more,
                             std::vector<TokenRecord> tokens,
                             std::string &text) {
  Item &item = items.back();
  item.text += more;
  ordered_json members = {{"delta", more}};
  if (item.kind == ItemKind::Text) {
    members["logprobs"] = logprobsOf(tokens);
    std::ranges::move(tokens, std::back_inserter(item.tokens));
  }
  if (!more.empty())
    emitOfItem(itemWords(item.kind, item.tool.isCustom).delta, members, text);
}

void ResponseAnswer::endItem(const char *status, std::string &text) {
  if (items.back().tool.isCustom)
    addText(items.back().custom.finish(), {}, text);
  Item &item = items.back();
  item.status = status;
  const ItemWords &words = itemWords(item.kind, item.tool.isCustom);
  ordered_json members = {{words.whole, item.text}};
  if (item.kind == ItemKind::Text)
    members["logprobs"] = logprobsOf(item.tokens);
  if (item.kind == ItemKind::Call && !item.tool.isCustom)
    members["name"] = item.tool.name;
  emitOfItem(words.done, members, text);
  if (item.kind != ItemKind::Call)
    emitOfItem("response.content_part.done", {{"part", partOf(item)}}, text);
  emit("response.output_item.done",
       {{"output_index", items.size() - 1}, {"item", itemOf(item)}}, text);
}

void ResponseAnswer::takePart(ItemDelta &part, const char *status,
                              std::string &text) {
  if (part.item == items.size())
    beginItem(part, text);
  Item &item = items.back();
  if (item.tool.isCustom)
    part.text = item.custom.push(part.text);
  addText(part.text, std::move(part.tokens), text);
  if (part.isWhole)
    endItem(status, text);
}

std::string ResponseAnswer::write(Delta delta) {
  std::string text;
  const bool isCut = delta.finish == Finish::Length;
  for (ItemDelta &part : delta.items) {
    // A call that is cut or broken has no end of its own.
    if (part.item == items.size() && !items.empty() && !items.back().status)
      endItem(kIncomplete, text);
    const bool isLast = &part == &delta.items.back();
    takePart(part,
             isCut && isLast && part.kind != ItemKind::Call ? kIncomplete
                                                            : kCompleted,
             text);
  }
  if (delta.finish == Finish::None)
    return text;
  ended = delta.finish;
  if (!items.empty() && !items.back().status)
    endItem(kIncomplete, text);
  return text;
}

std::string ResponseAnswer::finish() {
  const bool isCut = ended == Finish::Length;
  const ordered_json response = responseOf(isCut ? kIncomplete : kCompleted);
  if (!isEvents())
    return dump(response);
  std::string text;
  emit(isCut ? "response.incomplete" : "response.completed",
       {{"response", response}}, text);
  return text;
}

std::string ResponseAnswer::fail(const ApiError &error) {
  failure = {
      {"code", error.status() == 429 ? "rate_limit_exceeded" : "server_error"},
      {"message", error.what()}};
  std::string text;
  emit("response.failed", {{"response", responseOf("failed")}}, text);
  return text;
}
