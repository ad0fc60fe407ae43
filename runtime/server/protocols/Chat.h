//===- Chat.h - /v1/chat/completions ----------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_CHAT_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_CHAT_H

#include "server/AnswerParameters.h"

namespace qwen::server {

struct ChatParameters : ModelParameters, AnswerParameters {
  /// Each has a "role" and a "content", which is a string.
  nlohmann::ordered_json messages;
  bool addGenerationPrompt = true;
  bool continueFinalMessage = false;
  /// Further variables of the chat template.
  nlohmann::ordered_json templateVariables = nlohmann::ordered_json::object();
  bool noThinking = false;

  void setEffort(const nlohmann::ordered_json &value);
  static const ParameterTable table;
  using List =
      ParameterList<ModelParameters, SamplingParameters, BeamParameters,
                    StopParameters, TokenParameters, StreamParameters,
                    RequestParameters, ReasoningParameters, ChatParameters>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_CHAT_H
