//===- Tools.h - The tools of a request -------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_TOOLS_H
#define QWEN_RUNTIME_TEXT_TOOLS_H

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// What the text of a tool may be.
struct TextGrammar {
  /// The only parameter of the tool, a string, which has the text.
  std::string parameter;
  /// Whether it is a regular expression, in Rust's syntax; else it is a grammar
  /// in llguidance's form of Lark.
  bool isRegex = false;
  std::string definition;
};

/// Where a call has the text of its tool, and how.
struct TextPlace {
  /// All that stands before it, from the opening mark of the call on.
  std::string before;
  /// What it ends before. No character but the first is like the first.
  std::string end;
  /// Whether it is the inside of a string of JSON, which `end` ends.
  bool isJson = false;
};

/// A function that a model may call.
struct Tool {
  std::string name;
  /// JSON schema of its arguments, an object; may be empty.
  nlohmann::ordered_json parameters = nlohmann::ordered_json::object();
  /// Whether arguments that a grammar keeps must be of the schema.
  bool isStrict = false;
  /// What a grammar keeps the string of its schema to.
  std::optional<TextGrammar> grammar = {};
};

using Tools = std::vector<Tool>;

/// The tool of this name, or null.
const Tool *findTool(const Tools &tools, std::string_view name);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_TOOLS_H
