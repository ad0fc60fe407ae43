//===- ToolGrammar.cpp - The grammar of the calls of a request ------------===//

#include "grammar/ToolGrammar.h"

#include "text/KeptSchema.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

using namespace qwen;
using nlohmann::ordered_json;

/// Maximum number of grammars that are tried for one request.
static constexpr size_t kMostTries = 128;

namespace {
class ToolGrammarMaker {
public:
  ToolGrammarMaker(const GrammarCompiler &grammarCompiler,
                   const CallOptions &callOptions, CallMarks callMarks,
                   const std::stop_token &stopToken)
      : compiler(grammarCompiler), calls(callOptions), marks(callMarks),
        stop(stopToken) {}

  std::unique_ptr<Grammar> make();

private:
  std::unique_ptr<Grammar> compile(const Tools &tools, const CallRules &rules,
                                   const std::set<size_t> &loose = {}) const;
  /// Why the schema of one tool cannot be kept; nothing if it can.
  std::optional<std::string> refusal(const Tool &tool);
  bool keeps(const Tool &tool) { return !refusal(tool); }
  /// A tool that is kept, with as much of the schema as possible; nothing if
  /// none of it can be kept.
  std::optional<Tool> loosened(Tool tool);
  /// Takes away what of a property is not kept.
  void loosenProperty(Tool &tool, const std::string &key);

  const GrammarCompiler &compiler;
  const CallOptions &calls;
  const CallMarks marks;
  const std::stop_token &stop;
  size_t tries = 0;
};
} // namespace

std::unique_ptr<Grammar>
ToolGrammarMaker::compile(const Tools &tools, const CallRules &rules,
                          const std::set<size_t> &loose) const {
  GrammarSource source = {GrammarKind::Calls, callGrammar(*calls.format, tools,
                                                          rules, marks, loose)};
  for (const Tool &tool : tools)
    if (const std::optional<TextGrammar> &text = tool.grammar)
      source.inner.push_back(
          {.kind = text->isRegex ? GrammarKind::Regex : GrammarKind::Lark,
           .text = text->definition,
           .mark = marks.open,
           .place = calls.format->placeOf(tool)});
  return compiler.compile(source, stop);
}

std::optional<std::string> ToolGrammarMaker::refusal(const Tool &tool) {
  if (++tries > kMostTries)
    return "more than " + std::to_string(kMostTries) +
           " grammars are tried for the tools";
  try {
    compile({tool}, {.isRequired = true, .isSingle = true});
    return std::nullopt;
  } catch (const Error &error) {
    if (error.kind() != ErrorKind::General)
      throw;
    return error.what();
  }
}

void ToolGrammarMaker::loosenProperty(Tool &tool, const std::string &key) {
  ordered_json &schema = tool.parameters["properties"][key];
  Tool alone = tool;
  alone.parameters.erase("required");
  const auto keepsAs = [&](const ordered_json &value) {
    alone.parameters["properties"] = {{key, value}};
    return keeps(alone);
  };
  if (keepsAs(schema))
    return;
  if (schema.is_object() && schema.contains("type")) {
    const ordered_json type = {{"type", schema["type"]}};
    if (keepsAs(type)) {
      schema = type;
      return;
    }
  }
  schema = ordered_json::object();
}

std::optional<Tool> ToolGrammarMaker::loosened(Tool tool) {
  if (!tool.parameters.is_object())
    return std::nullopt;
  tool.parameters = loosenedSchema(std::move(tool.parameters));
  if (keeps(tool))
    return tool;
  // Now only what a tool's schema usually has.
  ordered_json schema = ordered_json::object();
  for (const char *key : {"type", "properties", "required",
                          "additionalProperties", "$defs", "definitions"})
    if (tool.parameters.contains(key))
      schema[key] = tool.parameters[key];
  tool.parameters = std::move(schema);
  const ordered_json properties =
      tool.parameters.value("properties", ordered_json());
  if (!properties.is_object())
    return std::nullopt;
  Tool others = tool;
  others.parameters.erase("properties");
  others.parameters.erase("required");
  if (!keeps(others))
    tool.parameters.erase("additionalProperties");
  for (const auto &[key, value] : properties.items())
    loosenProperty(tool, key);
  if (!keeps(tool))
    tool.parameters.erase("required");
  return keeps(tool) ? std::optional(tool) : std::nullopt;
}

std::unique_ptr<Grammar> ToolGrammarMaker::make() {
  try {
    return compile(*calls.tools, *calls.rules);
  } catch (const Error &error) {
    if (error.kind() != ErrorKind::General)
      throw;
  }
  Tools tools = *calls.tools;
  std::set<size_t> loose;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::optional<std::string> why = refusal(tools[i]);
    if (!why)
      continue;
    if (tools[i].isStrict || tools[i].grammar)
      throw Error(
          (tools[i].grammar ? "the grammar of " : "the parameters of ") +
          quote(tools[i].name) + ": " + *why);
    if (std::optional<Tool> kept = loosened(tools[i]))
      tools[i] = *std::move(kept);
    else
      loose.insert(i);
  }
  return compile(tools, *calls.rules, loose);
}

std::unique_ptr<Grammar> qwen::makeToolGrammar(const GrammarCompiler &compiler,
                                               const CallOptions &calls,
                                               CallMarks marks,
                                               const std::stop_token &stop) {
  return ToolGrammarMaker(compiler, calls, marks, stop).make();
}
