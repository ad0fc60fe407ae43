//===- Tools.h - The tools of a request -------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_TOOLS_H
#define QWEN_RUNTIME_TEXT_TOOLS_H

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// A function that a model may call.
struct Tool {
  std::string name;
  /// JSON schema of its arguments, an object; may be empty.
  nlohmann::ordered_json parameters = nlohmann::ordered_json::object();
  /// Whether arguments that a grammar keeps must be of the schema.
  bool isStrict = false;
};

using Tools = std::vector<Tool>;

/// The tool of this name, or null.
const Tool *findTool(const Tools &tools, std::string_view name);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_TOOLS_H
