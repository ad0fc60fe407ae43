//===- Messages.h - /v1/messages --------------------------------*- C++ -*-===//
//
// The Messages API of Anthropic, which agents such as Claude Code speak.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MESSAGES_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MESSAGES_H

#include "server/Conversation.h"

namespace qwen::server {

/// What a request says of its conversation, and of the answer that changes the
/// prompt.
struct MessagesPrompt {
  /// Messages of a chat template, of "system" and of "messages".
  nlohmann::ordered_json system = nlohmann::ordered_json::array();
  nlohmann::ordered_json messages;
  /// As the kinds of messages/Kinds.h have them.
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();
  nlohmann::ordered_json toolChoice, thinking, keepsThinking, output, format;
  /// Further variables of the chat template.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();

  /// `thinks`: whether the model is to think if the request does not say.
  Conversation conversation(std::optional<bool> thinks) const;
  ToolChoice choice() const;
  static const ParameterTable table;
};

// NOLINTNEXTLINE(misc-multiple-inheritance): data
struct MessagesParameters : ModelParameters, AnswerParameters, MessagesPrompt {
  /// Sets what the reasoning and the text of the answer are bound by.
  void bindAnswer();
  static const ParameterTable table;
  using List = OpenParameterList<ModelParameters, SamplingParameters,
                                 MessagesPrompt, MessagesParameters>;
};

/// A request of /v1/messages/count_tokens.
// NOLINTNEXTLINE(misc-multiple-inheritance): data
struct CountParameters : ModelParameters, MessagesPrompt {
  using List = OpenParameterList<ModelParameters, MessagesPrompt>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MESSAGES_H
