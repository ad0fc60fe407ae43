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
  /// "none", "auto", "required", an array with the name of a function, or an
  /// object with a "mode", which is "auto" or "required", and the "names" of
  /// the functions that the answer may call.
  nlohmann::ordered_json toolChoice = "auto";
  /// Whether the answer may have several calls.
  bool isParallel = true;
  /// Whether the request has OpenAI's older form, `functions`: an answer has
  /// one call.
  bool hasFunctions = false;

  void setFunctions(const nlohmann::ordered_json &value);
  ToolChoice choice() const;
  /// The tools that the model sees. Throws ApiError (400) if tool_choice names
  /// others.
  nlohmann::ordered_json shownTools() const;
  static const ParameterTable table;
};

/// The older form of one call, as toolCallsOf has it.
nlohmann::ordered_json functionCallOf(const nlohmann::ordered_json &value,
                                      const std::string &name,
                                      bool ignoreUnknown);

/// The calls of a message as a chat template reads them: their arguments are
/// objects. `name` is the member's. Throws ApiError (400), which names the
/// member.
nlohmann::ordered_json toolCallsOf(const nlohmann::ordered_json &value,
                                   const std::string &name, bool ignoreUnknown);

/// The JSON schema of the argument of toolCallsOf.
nlohmann::ordered_json toolCallsSchema(bool ignoreUnknown);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_TOOLPARAMETERS_H
