//===- MessageAnswer.cpp - Answers of content blocks ----------------------===//

#include "server/protocols/messages/MessageAnswer.h"

#include "server/Conversation.h"

#include <utility>

using namespace qwen;
using namespace qwen::server;
using namespace qwen::server::messages;
using nlohmann::ordered_json;

using J = const ordered_json &;

//===----------------------------------------------------------------------===//
// Errors and events
//===----------------------------------------------------------------------===//

static const char *errorType(unsigned status) {
  switch (status) {
  case 401:
    return "authentication_error";
  case 403:
    return "permission_error";
  case 404:
    return "not_found_error";
  case 413:
    return "request_too_large";
  case 429:
    return "rate_limit_error";
  case 503:
    return "overloaded_error";
  default:
    return status < 500 ? "invalid_request_error" : "api_error";
  }
}

/// Agents shorten a conversation if an error has these words, and read the
/// numbers behind them.
static std::string messageOf(const ApiError &error) {
  const std::string tooLong = "prompt is too long: ";
  if (error.lengths)
    return tooLong + std::to_string(error.lengths->prompt) + " tokens > " +
           std::to_string(error.lengths->context) + " maximum; " + error.what();
  return (error.code() == ErrorCode::LongContext ? tooLong : "") + error.what();
}

static std::string errorText(const ApiError &error) {
  return dump(
      {{"type", "error"},
       {"error",
        {{"type", errorType(error.status())}, {"message", messageOf(error)}}}});
}

static std::string writeEvent(std::string_view type, std::string_view data) {
  return std::string("event: ")
      .append(type)
      .append("\ndata: ")
      .append(data)
      .append("\n\n");
}

static Reply errorAnswer(const ApiError &error) {
  return errorReply(error, errorText(error));
}

static std::string errorEvent(const ApiError &error) {
  return writeEvent("error", errorText(error));
}

const Framing messages::kFraming = {
    .error = errorAnswer,
    .errorEvent = errorEvent,
    .event = writeEvent,
    .keepAlive = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .errorSchema = "MessageError"};

std::string MessageAnswer::eventOf(const char *type, J data) const {
  ordered_json object = {{"type", type}};
  object.update(data);
  return event(type, dump(object));
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// Clients send thinking without a signature back as nothing.
static constexpr const char *kSignature = "unsigned";

/// The block of an item, whose text is `text`.
static ordered_json blockOf(const ItemDelta &item, const std::string &text) {
  switch (item.kind) {
  case ItemKind::Text:
    return {{"type", "text"}, {"text", text}};
  case ItemKind::Reasoning:
    return {{"type", "thinking"},
            {"thinking", text},
            {"signature", text.empty() ? "" : kSignature}};
  case ItemKind::Call:
    break;
  }
  return {{"type", "tool_use"},
          {"id", "toolu_" + item.id},
          {"name", item.name},
          {"input", callArguments(text)}};
}

/// What a part adds to its block.
static ordered_json deltaOf(const ItemDelta &part) {
  switch (part.kind) {
  case ItemKind::Text:
    return {{"type", "text_delta"}, {"text", part.text}};
  case ItemKind::Reasoning:
    return {{"type", "thinking_delta"}, {"thinking", part.text}};
  case ItemKind::Call:
    return {{"type", "input_json_delta"}, {"partial_json", part.text}};
  }
  return {};
}

static bool hasBlock(const ItemDelta &part) {
  return part.kind == ItemKind::Call || !part.text.empty();
}

std::string MessageAnswer::open(const ItemDelta &part) {
  std::string text = close();
  block = {.item = part.item, .index = blocks++, .kind = part.kind};
  return text +
         eventOf("content_block_start", {{"index", block->index},
                                         {"content_block", blockOf(part, "")}});
}

std::string MessageAnswer::close() {
  if (!block)
    return "";
  const Open last = *std::exchange(block, std::nullopt);
  std::string text;
  if (last.kind == ItemKind::Reasoning)
    text = eventOf(
        "content_block_delta",
        {{"index", last.index},
         {"delta", {{"type", "signature_delta"}, {"signature", kSignature}}}});
  return text + eventOf("content_block_stop", {{"index", last.index}});
}

std::string MessageAnswer::writePart(const ItemDelta &part) {
  std::string text;
  // A block of no text would be none that the API takes back.
  if ((!block || block->item != part.item) && hasBlock(part) &&
      (part.kind != ItemKind::Call || !part.id.empty()))
    text += open(part);
  if (!block || block->item != part.item)
    return text;
  if (!part.text.empty())
    text += eventOf("content_block_delta",
                    {{"index", block->index}, {"delta", deltaOf(part)}});
  return part.isWhole ? text + close() : text;
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

MessageAnswer::MessageAnswer(std::string modelName)
    : model(std::move(modelName)), id(randomId("msg_")) {}

ordered_json MessageAnswer::usage(const Usage &tokens) const {
  ordered_json object = {{"input_tokens", tokens.prompt - tokens.cached},
                         {"cache_creation_input_tokens", 0},
                         {"cache_read_input_tokens", tokens.cached},
                         {"output_tokens", tokens.drawn}};
  if (tokens.reasoning > 0)
    object["output_tokens_details"] = {{"thinking_tokens", tokens.reasoning}};
  return object;
}

ordered_json MessageAnswer::head(J content, J tokens) const {
  return {{"id", id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model},
          {"content", content},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", tokens}};
}

const char *MessageAnswer::stopReason() const {
  switch (choices[0].finish) {
  case Finish::None:
  case Finish::Stop:
    break;
  case Finish::StopString:
    return "stop_sequence";
  case Finish::Length:
    return generation->usage().drawn < task().parameters.maxTokens.value_or(0)
               ? "model_context_window_exceeded"
               : "max_tokens";
  case Finish::Calls:
    return "tool_use";
  }
  return "end_turn";
}

ordered_json MessageAnswer::stopSequence() const {
  const Delta &end = choices[0];
  return end.finish == Finish::StopString ? ordered_json(*end.stopString)
                                          : ordered_json();
}

std::string MessageAnswer::write(Delta delta) {
  if (!isEvents())
    return Answer::write(std::move(delta));
  std::string text;
  if (!std::exchange(hasBegun, true)) {
    Usage tokens{.prompt = std::ssize(task().prompts[0])};
    if (delta.progress)
      tokens.cached = delta.progress->cached;
    text = eventOf("message_start",
                   {{"message", head(ordered_json::array(), usage(tokens))}});
  }
  for (const ItemDelta &part : delta.items)
    text += writePart(part);
  if (delta.finish == Finish::None)
    return text;
  // What has been written need not be kept.
  delta.items.clear();
  Answer::write(std::move(delta));
  return text + close();
}

std::string MessageAnswer::finish() {
  const ordered_json tokens = usage(generation->usage());
  const ordered_json end = {{"stop_reason", stopReason()},
                            {"stop_sequence", stopSequence()}};
  if (isEvents())
    return eventOf("message_delta", {{"delta", end}, {"usage", tokens}}) +
           eventOf("message_stop", ordered_json::object());
  ordered_json content = ordered_json::array();
  for (const ItemDelta &item : choices[0].items)
    if (hasBlock(item))
      content.push_back(blockOf(item, item.text));
  ordered_json message = head(content, tokens);
  message.update(end);
  return dump(message);
}
