//===- Tools.h - Tools of /v1/responses as functions ------------*- C++ -*-===//
//
// Models know functions only. A tool of another kind is a function in the
// prompt, and its calls are written back in its own form.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_TOOLS_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_TOOLS_H

#include "server/Conversation.h"

namespace qwen::server::responses {

/// The only parameter of the function that stands for a custom tool.
inline constexpr const char *kCustomInput = "input";

/// What the prompt calls a tool of a namespace; an empty one is none.
std::string functionName(const std::string &space, const std::string &name);

/// What a request calls the tool of a function.
struct ToolName {
  std::string name;
  /// Its namespace; empty for none.
  std::string space = {};
  /// Whether its calls have a text, not an object.
  bool isCustom = false;
  /// What the text keeps to.
  std::optional<TextGrammar> grammar = {};
};

/// The tools of a request, and which of them the answer calls.
struct ToolParameters {
  /// As chat templates read them.
  nlohmann::ordered_json functions = nlohmann::ordered_json::array();
  /// In the same order.
  std::vector<ToolName> names;
  ToolChoice toolChoice = {};
  /// The functions that the answer may call; nothing for all.
  std::optional<std::vector<ToolName>> allowed = {};
  /// The values of the request, which the answer repeats.
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();
  nlohmann::ordered_json choiceValue = "auto";

  void setTools(const nlohmann::ordered_json &value);
  void setChoice(const nlohmann::ordered_json &value);
  void setParallel(const nlohmann::ordered_json &value);
  /// The name of a function that the answer calls, which no tool may have.
  ToolName nameOf(const std::string &function) const;
  /// Gives a conversation the tools that the answer may call, and the choice.
  void addTo(Conversation &conversation) const;
  static const ParameterTable table;
};

} // namespace qwen::server::responses

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_TOOLS_H
