//===- AnswerEvent.h - What an answer consists of ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_ANSWEREVENT_H
#define QWEN_RUNTIME_TEXT_ANSWEREVENT_H

#include <cstdint>
#include <string>
#include <vector>

namespace qwen {

enum class AnswerEventKind : uint8_t {
  /// Text for the user.
  Text,
  Reasoning,
  /// A call of a tool begins. The text is the name of the tool.
  ToolCallBegin,
  /// The text goes on with the call's arguments, a JSON object.
  ToolCallArguments,
  /// The call is whole. A call without this is not: the answer has ended in
  /// it, or its arguments are no JSON.
  ToolCallEnd,
  /// No text follows. The text is the stop string, which no other event has
  /// unless the caller wants it.
  StopString,
  /// The last event.
  End,
};

/// A token of an answer.
struct AnswerToken {
  int32_t id;
  /// Number of characters of the answer's tokens before its first one, at most
  /// those up to a stop string. The tokens of one character have the same.
  int64_t begin;
};

struct AnswerEvent {
  AnswerEventKind kind;
  std::string text = {};
  /// The tokens that begin in the answer before this event ends, except the
  /// tokens of earlier events. A stop string has none; End has all others. Text
  /// that may begin a call is held back without its tokens.
  std::vector<AnswerToken> tokens = {};
};

using AnswerEvents = std::vector<AnswerEvent>;

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_ANSWEREVENT_H
