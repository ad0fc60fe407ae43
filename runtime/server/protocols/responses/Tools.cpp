//===- Tools.cpp - Tools of /v1/responses as functions --------------------===//

#include "server/protocols/responses/Tools.h"

#include "qwen/Support/Text.h"
#include "text/Unicode.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Tooling = responses::ToolParameters;

std::string responses::functionName(const std::string &space,
                                    const std::string &name) {
  return space.empty() ? name : space + "__" + name;
}

//===----------------------------------------------------------------------===//
// Tools
//===----------------------------------------------------------------------===//

namespace {
/// Reads the tools of a request.
class ToolReader {
public:
  explicit ToolReader(const ParameterLimits &parameterLimits)
      : limits(parameterLimits) {}

  /// Reads a tool, of this namespace unless it is empty.
  void add(J tool, const std::string &name, const std::string &space,
           const std::string &about);

  ordered_json functions = ordered_json::array();
  /// A ToolName of each function, as an object.
  ordered_json names = ordered_json::array();

private:
  /// The string member of a tool; empty if it is missing.
  static std::string text(J tool, const char *key, const std::string &name);
  void addSpace(J tool, const std::string &name);
  void addFunction(J tool, const std::string &name, const std::string &space,
                   const std::string &about);
  void addCustom(J tool, const std::string &name, const std::string &space,
                 const std::string &about);
  ordered_json readGrammar(J format, const std::string &name);
  void store(J tool, const std::string &name, const std::string &space,
             const std::string &about, const ordered_json &function);

  const ParameterLimits &limits;
};
} // namespace

[[noreturn]] static void refuseTool(const std::string &name,
                                    const std::string &needed) {
  throw ApiError(400, name + " must be " + needed, name);
}

/// Bounds of the names of tools and of namespaces. With the mark between them
/// they make the longest name of a function.
static constexpr size_t kMostName = 128, kMostSpace = 126;

static void requireName(const std::string &text, size_t most,
                        const std::string &tool) {
  if (text.empty() || countCodePoints(text) > most)
    refuseTool(tool + ".name",
               "a string of 1 to " + std::to_string(most) + " characters");
}

std::string ToolReader::text(J tool, const char *key, const std::string &name) {
  J value = tool.value(key, ordered_json());
  if (value.is_null())
    return "";
  if (!value.is_string())
    refuseTool(name + "." + key, "a string");
  return value;
}

/// Adds a function with the description of the tool, or else of its namespace.
void ToolReader::store(J tool, const std::string &name,
                       const std::string &space, const std::string &about,
                       const ordered_json &function) {
  const std::string own = text(tool, "name", name);
  requireName(own, kMostName, name);
  const std::string full = responses::functionName(space, own);
  ordered_json described = {{"name", full}};
  const std::string description = text(tool, "description", name);
  if (const std::string &shown = description.empty() ? about : description;
      !shown.empty())
    described["description"] = shown;
  described.update(function);
  functions.push_back({{"type", "function"}, {"function", described}});
  names.push_back({{"name", own}, {"space", space}});
}

void ToolReader::addFunction(J tool, const std::string &name,
                             const std::string &space,
                             const std::string &about) {
  requireMembers(tool, name,
                 {"type", "name", "description", "parameters", "strict",
                  "allowed_callers", "async", "defer_loading", "output_schema"},
                 limits);
  ordered_json function = ordered_json::object();
  J schema = tool.value("parameters", ordered_json());
  if (!schema.is_null() && !schema.is_object())
    refuseTool(name + ".parameters", "an object");
  if (schema.is_object())
    function["parameters"] = schema;
  J strict = tool.value("strict", ordered_json());
  if (!strict.is_null() && !strict.is_boolean())
    refuseTool(name + ".strict", "a boolean");
  // Clients write false where they ask for nothing.
  if (strict == true && keepsPromise(name + ".strict", "true", limits))
    function["strict"] = true;
  store(tool, name, space, about, function);
}

/// The syntax and the definition of the grammar of a text.
ordered_json ToolReader::readGrammar(J format, const std::string &name) {
  requireMembers(format, name, {"type", "syntax", "definition"}, limits);
  J syntax = format.value("syntax", ordered_json());
  J definition = format.value("definition", ordered_json());
  if (syntax != "lark" && syntax != "regex")
    refuseTool(name + ".syntax", "lark or regex");
  if (!definition.is_string() || definition == "")
    refuseTool(name + ".definition", "a string that is not empty");
  return {{"syntax", syntax}, {"definition", definition}};
}

void ToolReader::addCustom(J tool, const std::string &name,
                           const std::string &space, const std::string &about) {
  requireMembers(tool, name,
                 {"type", "name", "description", "format", "allowed_callers",
                  "async", "defer_loading"},
                 limits);
  ordered_json value = {{"type", "string"}}, grammar;
  J format = tool.value("format", ordered_json());
  if (format.is_object() && format.value("type", ordered_json()) == "grammar") {
    grammar = readGrammar(format, name + ".format");
    value["description"] = "A text of this grammar (" +
                           grammar["syntax"].get<std::string>() + "):\n" +
                           grammar["definition"].get<std::string>();
  }
  const ordered_json schema = {
      {"type", "object"},
      {"properties", {{responses::kCustomInput, value}}},
      {"required", ordered_json::array({responses::kCustomInput})}};
  store(tool, name, space, about, {{"parameters", schema}});
  names.back()["isCustom"] = true;
  if (limits.hasGrammars)
    names.back()["grammar"] = grammar;
  else if (!grammar.is_null())
    limits.note(name + ".format is described and not kept: this server was "
                       "built without llguidance");
}

void ToolReader::addSpace(J tool, const std::string &name) {
  requireMembers(tool, name, {"type", "name", "description", "tools"}, limits);
  const std::string space = text(tool, "name", name);
  requireName(space, kMostSpace, name);
  J nested = tool.value("tools", ordered_json());
  if (!nested.is_array())
    refuseTool(name + ".tools", "an array");
  const std::string about = text(tool, "description", name);
  for (size_t i = 0; i < nested.size(); ++i)
    add(nested[i], indexed(name + ".tools", i), space, about);
}

void ToolReader::add(J tool, const std::string &name, const std::string &space,
                     const std::string &about) {
  if (!tool.is_object() || !tool.value("type", ordered_json()).is_string())
    refuseTool(name, "an object with a type");
  J type = tool["type"];
  if (type == "function")
    return addFunction(tool, name, space, about);
  if (type == "custom")
    return addCustom(tool, name, space, about);
  if (type == "namespace" && space.empty())
    return addSpace(tool, name);
  limits.note(name + " of type " + quote(type.get<std::string>()) +
              " is left out: the server runs no tools");
}

static ordered_json readAllTools(J value, const std::string &name,
                                 const ParameterLimits &limits) {
  if (!value.is_array())
    refuseTool(name, "an array of tools");
  ToolReader reader(limits);
  for (size_t i = 0; i < value.size(); ++i)
    reader.add(value[i], indexed(name, i), "", "");
  if (!reader.functions.empty() && !limits.noTools.empty()) {
    if (!limits.ignoreUnknown)
      throw ApiError(400, limits.noTools, name);
    limits.note(name + " has no effect: " + limits.noTools);
    reader.functions = reader.names = ordered_json::array();
  }
  return {{"value", value},
          {"functions", std::move(reader.functions)},
          {"names", std::move(reader.names)}};
}

/// The schema of a tool that may be of a namespace, or of none that the server
/// knows.
static ordered_json toolSchema(const ParameterLimits &limits, bool isNested) {
  ordered_json kinds = ordered_json::parse(R"([
    {"type": "object", "required": ["type", "name"], "properties": {
      "type": {"const": "function"},
      "name": {"type": "string", "minLength": 1, "maxLength": 128},
      "description": {"type": ["string", "null"]},
      "parameters": {"type": ["object", "null"]}, "strict": {"type": ["boolean", "null"]}}},
    {"type": "object", "required": ["type", "name"], "properties": {
      "type": {"const": "custom"},
      "name": {"type": "string", "minLength": 1, "maxLength": 128},
      "description": {"type": ["string", "null"]},
      "format": {"anyOf": [
        {"type": "null"},
        {"type": "object", "properties": {"type": {"not": {"const": "grammar"}}}},
        {"type": "object", "required": ["type", "syntax", "definition"], "properties": {
          "type": {"const": "grammar"}, "syntax": {"enum": ["lark", "regex"]},
          "definition": {"type": "string", "minLength": 1}}}]}}}])");
  if (!limits.hasGrammars && !limits.ignoreUnknown)
    kinds[0]["properties"]["strict"] = {{"enum", {false, nullptr}}};
  if (!limits.noTools.empty() && !limits.ignoreUnknown)
    kinds.clear();
  ordered_json known = ordered_json::array({"function", "custom"});
  if (!isNested) {
    known.push_back("namespace");
    kinds.push_back(ordered_json::parse(R"({
      "type": "object", "required": ["type", "name", "tools"], "properties": {
        "type": {"const": "namespace"},
        "name": {"type": "string", "minLength": 1, "maxLength": 126},
        "description": {"type": ["string", "null"]},
        "tools": {"type": "array"}}})"));
    kinds.back()["properties"]["tools"]["items"] = toolSchema(limits, true);
  }
  // The server leaves out the others.
  kinds.push_back(
      {{"type", "object"},
       {"required", ordered_json::array({"type"})},
       {"properties",
        {{"type", {{"type", "string"}, {"not", {{"enum", known}}}}}}}});
  return {{"anyOf", kinds}};
}

static ordered_json allToolsSchema(const ParameterLimits &limits) {
  return {{"type", "array"}, {"items", toolSchema(limits, false)}};
}

void Tooling::setTools(J value) {
  tools = value["value"];
  functions = value["functions"];
  for (J each : value["names"]) {
    ToolName tool = {.name = each["name"],
                     .space = each["space"],
                     .isCustom = each.contains("isCustom")};
    if (J grammar = each.value("grammar", ordered_json()); !grammar.is_null())
      tool.grammar = {.parameter = kCustomInput,
                      .isRegex = grammar["syntax"] == "regex",
                      .definition = grammar["definition"]};
    names.push_back(std::move(tool));
  }
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

/// A tool that a choice names: its name and its namespace.
static ordered_json namedTool(J value, const std::string &name) {
  J type = value.value("type", ordered_json());
  if (type != "function" && type != "custom")
    throw ApiError(
        400,
        name + " names a tool of type " +
            quote(type.is_string() ? type.get<std::string>() : type.dump()) +
            ", which this server does not run",
        name);
  J tool = value.value("name", ordered_json());
  J space = value.value("namespace", ordered_json());
  if (!tool.is_string() || (!space.is_string() && !space.is_null()))
    refuseTool(name + ".name", "a string");
  return {tool, space.is_null() ? ordered_json("") : space};
}

static ordered_json readToolChoice(J value, const std::string &name,
                                   const ParameterLimits &limits) {
  ordered_json read = {{"value", value}, {"mode", "auto"}};
  if (value == "none" || value == "auto") {
    read["mode"] = value;
  } else if (value == "required") {
    if (keepsPromise(name, "required", limits))
      read["mode"] = value;
  } else if (!value.is_object()) {
    refuseTool(name, "none, auto, required, or an object with a type");
  } else if (value.value("type", ordered_json()) == "allowed_tools") {
    J allowed = value.value("tools", ordered_json());
    if (!allowed.is_array())
      refuseTool(name + ".tools", "an array of tools");
    read["allowed"] = ordered_json::array();
    for (size_t i = 0; i < allowed.size(); ++i)
      if (allowed[i].is_object())
        read["allowed"].push_back(
            namedTool(allowed[i], indexed(name + ".tools", i)));
    if (value.value("mode", ordered_json()) == "required" &&
        keepsPromise(name + ".mode", "required", limits))
      read["mode"] = "required";
  } else {
    read["named"] = namedTool(value, name);
    if (!keepsPromise(name, "with a name", limits))
      read.erase("named");
  }
  return read;
}

static ordered_json toolChoiceSchema(const ParameterLimits &limits) {
  if (!limits.hasGrammars && !limits.ignoreUnknown)
    return {{"enum", {"none", "auto"}}};
  return ordered_json::parse(R"({"anyOf": [
    {"enum": ["none", "auto", "required"]},
    {"type": "object", "required": ["type", "name"],
     "properties": {"type": {"enum": ["function", "custom"]},
                    "name": {"type": "string"}, "namespace": {"type": "string"}}},
    {"type": "object", "required": ["type", "mode", "tools"],
     "properties": {"type": {"const": "allowed_tools"},
                    "mode": {"enum": ["auto", "required"]},
                    "tools": {"type": "array", "items": {
                      "type": "object", "required": ["type", "name"],
                      "properties": {"type": {"enum": ["function", "custom"]},
                                     "name": {"type": "string"}}}}}}]})");
}

void Tooling::setChoice(J value) {
  choiceValue = value["value"];
  if (value.contains("named")) {
    toolChoice.kind = ToolChoice::Named;
    toolChoice.name =
        functionName(value["named"][1], value["named"][0].get<std::string>());
  } else if (value["mode"] == "none") {
    toolChoice.kind = ToolChoice::None;
  } else if (value["mode"] == "required") {
    toolChoice.kind = ToolChoice::Required;
  }
  if (!value.contains("allowed"))
    return;
  allowed.emplace();
  for (J each : value["allowed"])
    allowed->push_back({.name = each[0], .space = each[1]});
}

void Tooling::setParallel(J value) { toolChoice.isParallel = value; }

static constexpr OwnKind kAllTools = {readAllTools, allToolsSchema};
static constexpr OwnKind kToolChoice = {readToolChoice, toolChoiceSchema};
static constexpr OwnKind kManyCalls = {
    [](J value, const std::string &name, const ParameterLimits &limits) {
      if (!value.is_boolean())
        refuseTool(name, "a boolean");
      return ordered_json(value != false ||
                          !keepsPromise(name, "false", limits));
    },
    [](const ParameterLimits &limits) {
      return limits.hasGrammars || limits.ignoreUnknown
                 ? ordered_json{{"type", "boolean"}}
                 : ordered_json{{"const", true}};
    }};

// clang-format off
static constexpr Parameter kResponseToolRows[] = {
    {.name = "tools", .kind = Kind::Own,
     .help = "Tools that the answer may call: functions, custom tools, whose calls have one text, and namespaces of these; the server runs none, and leaves out others",
     .store = at<Tooling, &Tooling::setTools>, .own = &kAllTools},
    {.name = "tool_choice", .kind = Kind::Own,
     .help = "none: the answer calls no tool; auto: it may call some; required, or a tool with its name: it is calls; allowed_tools: it may call these",
     .store = at<Tooling, &Tooling::setChoice>, .own = &kToolChoice},
    {.name = "parallel_tool_calls", .kind = Kind::Own, .help = "The answer may have several calls",
     .store = at<Tooling, &Tooling::setParallel>, .own = &kManyCalls},
};
// clang-format on

static constexpr ParameterRule kResponseToolRules[] = {
    {"tool_choice", "needs tools that the client runs",
     [](J, const void *group) {
       const auto &values = *static_cast<const Tooling *>(group);
       return values.toolChoice.kind == ToolChoice::None ||
              values.toolChoice.kind == ToolChoice::Auto ||
              !values.functions.empty();
     },
     R"({"anyOf": [
       {"properties": {"tool_choice": {"enum": ["none", "auto", null]}}},
       {"required": ["tools"], "properties": {"tools": {
         "type": "array", "contains": {"required": ["type"], "properties": {
           "type": {"enum": ["function", "custom", "namespace"]}}}}}}
     ]})"},
};
const ParameterTable Tooling::table = {kResponseToolRows, kResponseToolRules};

//===----------------------------------------------------------------------===//
// Conversations
//===----------------------------------------------------------------------===//

/// Whether a tool has this name, which may leave out its namespace.
static bool isCalled(const responses::ToolName &tool,
                     const responses::ToolName &asked) {
  return tool.name == asked.name &&
         (asked.space.empty() || tool.space == asked.space);
}

responses::ToolName Tooling::nameOf(const std::string &function) const {
  for (const ToolName &tool : names)
    if (functionName(tool.space, tool.name) == function)
      return tool;
  return {.name = function};
}

void Tooling::addTo(Conversation &conversation) const {
  conversation.choice = toolChoice;
  for (size_t i = 0; i < names.size(); ++i) {
    const ToolName &tool = names[i];
    if (!allowed || std::ranges::any_of(*allowed, [&](const ToolName &asked) {
          return isCalled(tool, asked);
        })) {
      conversation.tools.push_back(functions[i]);
      if (tool.grammar)
        conversation.grammars[functionName(tool.space, tool.name)] =
            *tool.grammar;
    }
    // A tool of a namespace may be chosen by its own name.
    if (toolChoice.kind == ToolChoice::Named && tool.name == toolChoice.name &&
        std::ranges::none_of(names, [&](const ToolName &other) {
          return functionName(other.space, other.name) == toolChoice.name;
        }))
      conversation.choice.name = functionName(tool.space, tool.name);
  }
}
