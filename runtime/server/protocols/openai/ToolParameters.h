//===- ToolParameters.h - Tools and their calls in requests -----*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_TOOLPARAMETERS_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_TOOLPARAMETERS_H

#include "server/Conversation.h"

namespace qwen::server {

/// The functions that an answer may call.
struct ToolParameters {
  /// As the request has them, for the chat template; empty if the answer may
  /// call none.
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();
  /// "none", "auto", "required", or an array with the name of a function.
  nlohmann::ordered_json toolChoice = "auto";
  /// Whether the answer may have several calls.
  bool isParallel = true;

  ToolChoice choice() const;
  static const ParameterTable table;
};

/// The calls of a message as a chat template reads them: their arguments are
/// objects. `name` is the member's. Throws ApiError (400), which names the
/// member.
nlohmann::ordered_json toolCallsOf(const nlohmann::ordered_json &value,
                                   const std::string &name, bool ignoreUnknown);

/// The JSON schema of the argument of toolCallsOf.
nlohmann::ordered_json toolCallsSchema(bool ignoreUnknown);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_TOOLPARAMETERS_H
