//===- Responses.h - /v1/responses ------------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_RESPONSES_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_RESPONSES_H

#include "server/protocols/responses/Tools.h"

namespace qwen::server::responses {

// NOLINTNEXTLINE(misc-multiple-inheritance): data
struct ResponseParameters : ModelParameters, AnswerParameters, ToolParameters {
  /// As Conversation has them, without the instructions.
  nlohmann::ordered_json input = nlohmann::ordered_json::array();
  std::optional<std::string> instructions;
  /// Variables of the chat template.
  nlohmann::ordered_json ownVariables = nlohmann::ordered_json::object();
  nlohmann::ordered_json otherVariables = nlohmann::ordered_json::object();
  /// Whether items of reasoning have "encrypted_content".
  bool sealsReasoning = false;
  /// Members of the request that the answer repeats.
  nlohmann::ordered_json repeated = nlohmann::ordered_json::object();

  void setReasoning(const nlohmann::ordered_json &value);
  void setText(const nlohmann::ordered_json &value);
  void setInclude(const nlohmann::ordered_json &value);
  Conversation conversation() const;
  static const ParameterTable table;
  using List =
      OpenParameterList<ModelParameters, SamplingParameters, StopParameters,
                        GrammarParameters, StreamParameters, RequestParameters,
                        ReasoningParameters, ToolParameters,
                        ResponseParameters>;
};

/// OpenAI's errors, and events that have a type.
extern const Framing kFraming;

} // namespace qwen::server::responses

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_RESPONSES_H
