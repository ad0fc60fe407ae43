//===- Chat.h - /v1/chat/completions ----------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_CHAT_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_CHAT_H

#include "server/protocols/openai/ToolParameters.h"

namespace qwen::server {

/// The kind of a list of messages; messagesOf makes its value.
extern const OwnKind kMessagesKind;

// NOLINTNEXTLINE(misc-multiple-inheritance): data
struct ChatParameters : ModelParameters, AnswerParameters, ToolParameters {
  /// Each has a "role" and a "content", which is a string; see messagesOf.
  nlohmann::ordered_json messages;
  bool addGenerationPrompt = true;
  bool continueFinalMessage = false;
  /// Further variables of the chat template: variables with parameters of their
  /// own, and others, which come before them.
  nlohmann::ordered_json ownVariables = nlohmann::ordered_json::object();
  nlohmann::ordered_json otherVariables = nlohmann::ordered_json::object();

  void setEffort(const nlohmann::ordered_json &value);
  /// All of these variables.
  nlohmann::ordered_json templateVariables() const;
  Conversation conversation() const;
  static const ParameterTable table;
  using List =
      ParameterList<ModelParameters, SamplingParameters, BeamParameters,
                    StopParameters, GrammarParameters, TokenParameters,
                    StreamParameters, RequestParameters, ReasoningParameters,
                    ToolParameters, ChatParameters>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_CHAT_H
