//===- ToolParameters.cpp - Tools and their calls in requests -------------===//

#include "server/protocols/openai/ToolParameters.h"

#include "model/ToolFormat.h"
#include "server/http/ApiError.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <span>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;

static ordered_json readTools(J value, const std::string &name,
                              const ParameterLimits &limits) {
  try {
    toolsOf(value, name);
  } catch (const Error &error) {
    if (limits.ignoreUnknown)
      return ordered_json::array();
    throw ApiError(400, error.what(), name);
  }
  if (!value.empty() && !limits.noTools.empty()) {
    if (limits.ignoreUnknown)
      return ordered_json::array();
    throw ApiError(400, limits.noTools, name);
  }
  ordered_json tools = value;
  for (size_t i = 0; i < tools.size(); ++i) {
    ordered_json &function = tools[i]["function"];
    if (function.value("strict", ordered_json()) == true &&
        !keepsPromise(indexed(name, i) + ".function.strict", "true", limits))
      function["strict"] = false;
  }
  return tools;
}

static ordered_json toolsSchema(const ParameterLimits &limits) {
  if (limits.ignoreUnknown)
    return ordered_json::object();
  ordered_json schema = {{"type", "array"}};
  if (!limits.noTools.empty()) {
    schema["maxItems"] = 0;
    return schema;
  }
  schema["items"] = ordered_json::parse(R"({
    "type": "object", "required": ["type", "function"],
    "properties": {
      "type": {"const": "function"},
      "function": {
        "type": "object", "required": ["name"],
        "properties": {
          "name": {"type": "string", "minLength": 1, "maxLength": 256},
          "parameters": {"type": ["object", "null"]}}}}})");
  if (!limits.hasGrammars)
    schema["items"]["properties"]["function"]["properties"]["strict"] = {
        {"not", {{"const", true}}}};
  return schema;
}

/// Whether a value is {"type": "function", "function": {"name": ...}}.
static bool namesFunction(J value) {
  return value.is_object() &&
         value.value("type", ordered_json()) == "function" &&
         value.contains("function") && value["function"].is_object() &&
         value["function"].value("name", ordered_json()).is_string();
}

/// The choice of one function, by its name.
static ordered_json choiceOf(J function, const std::string &name,
                             const ParameterLimits &limits) {
  return keepsPromise(name, "with a name", limits)
             ? ordered_json::array({function})
             : ordered_json("auto");
}

/// The choice of some tools: {"type": "allowed_tools", "allowed_tools":
/// {"mode": ..., "tools": [...]}}.
static ordered_json readAllowed(J value, const std::string &name,
                                const ParameterLimits &limits) {
  const std::string inner = name + ".allowed_tools";
  const auto refuse = [&](const std::string &what) {
    throw ApiError(400, inner + what, name);
  };
  requireMembers(value, name, {"type", "allowed_tools"}, limits);
  J allowed = value.value("allowed_tools", ordered_json());
  if (!allowed.is_object())
    refuse(" must be an object with mode and tools");
  requireMembers(allowed, inner, {"mode", "tools"}, limits);
  J mode = allowed.value("mode", ordered_json());
  if (mode != "auto" && mode != "required")
    refuse(".mode must be auto or required");
  J tools = allowed.value("tools", ordered_json());
  if (!tools.is_array() || tools.empty() ||
      !std::ranges::all_of(tools, namesFunction))
    refuse(".tools must be an array of {\"type\": \"function\", "
           "\"function\": {\"name\": ...}}, not empty");
  ordered_json names = ordered_json::array();
  for (J tool : tools)
    names.push_back(tool["function"]["name"]);
  const bool isRequired =
      mode == "required" && keepsPromise(inner + ".mode", "required", limits);
  return {{"mode", isRequired ? "required" : "auto"}, {"names", names}};
}

static ordered_json readChoice(J value, const std::string &name,
                               const ParameterLimits &limits) {
  if (value.is_object() && !limits.ignoreUnknown &&
      value.value("type", ordered_json()) == "allowed_tools")
    return readAllowed(value, name, limits);
  if (value == "none" || value == "auto")
    return value;
  if (value == "required")
    return keepsPromise(name, "required", limits) ? value
                                                  : ordered_json("auto");
  if (namesFunction(value)) {
    requireMembers(value, name, {"type", "function"}, limits);
    requireMembers(value["function"], name + ".function", {"name"}, limits);
    return choiceOf(value["function"]["name"], name, limits);
  }
  if (limits.ignoreUnknown)
    return "auto";
  throw ApiError(400,
                 name + " must be none, auto, required, {\"type\": "
                        "\"function\", \"function\": {\"name\": ...}}, or "
                        "{\"type\": \"allowed_tools\", ...}",
                 name);
}

static ordered_json choiceSchema(const ParameterLimits &limits) {
  if (limits.ignoreUnknown)
    return ordered_json::object();
  ordered_json allowed = ordered_json::parse(R"({
    "type": "object", "required": ["type", "allowed_tools"],
    "properties": {
      "type": {"const": "allowed_tools"},
      "allowed_tools": {
        "type": "object", "required": ["mode", "tools"],
        "properties": {
          "mode": {"enum": ["auto"]},
          "tools": {"type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["type", "function"],
            "properties": {
              "type": {"const": "function"},
              "function": {"type": "object", "required": ["name"],
                           "properties": {"name": {"type": "string"}}}}}}},
        "additionalProperties": false}},
    "additionalProperties": false})");
  if (!limits.hasGrammars)
    return {{"anyOf", {{{"enum", {"none", "auto"}}}, allowed}}};
  allowed["properties"]["allowed_tools"]["properties"]["mode"]["enum"]
      .push_back("required");
  ordered_json choices = ordered_json::parse(R"({"anyOf": [
    {"enum": ["none", "auto", "required"]},
    {"type": "object", "required": ["type", "function"],
     "properties": {
       "type": {"const": "function"},
       "function": {
         "type": "object", "required": ["name"],
         "properties": {"name": {"type": "string"}},
         "additionalProperties": false}},
     "additionalProperties": false}]})");
  choices["anyOf"].push_back(allowed);
  return choices;
}

//===----------------------------------------------------------------------===//
// The older form of tools
//===----------------------------------------------------------------------===//

static ordered_json readFunctions(J value, const std::string &name,
                                  const ParameterLimits &limits) {
  if (!value.is_array())
    throw ApiError(400, name + " must be an array of functions", name);
  ordered_json tools = ordered_json::array();
  for (J function : value)
    tools.push_back({{"type", "function"}, {"function", function}});
  return readTools(tools, name, limits);
}

static ordered_json functionsSchema(const ParameterLimits &limits) {
  ordered_json schema = toolsSchema(limits);
  if (schema.contains("items"))
    schema["items"] = ordered_json(schema["items"]["properties"]["function"]);
  return schema;
}

static ordered_json readFunctionChoice(J value, const std::string &name,
                                       const ParameterLimits &limits) {
  if (value == "none" || value == "auto")
    return value;
  if (value.is_object() && value.value("name", ordered_json()).is_string()) {
    requireMembers(value, name, {"name"}, limits);
    return choiceOf(value["name"], name, limits);
  }
  if (limits.ignoreUnknown)
    return "auto";
  throw ApiError(400, name + " must be none, auto, or {\"name\": ...}", name);
}

static ordered_json functionChoiceSchema(const ParameterLimits &limits) {
  if (limits.ignoreUnknown)
    return ordered_json::object();
  if (!limits.hasGrammars)
    return {{"enum", {"none", "auto"}}};
  return ordered_json::parse(R"({"anyOf": [
    {"enum": ["none", "auto"]},
    {"type": "object", "required": ["name"],
     "properties": {"name": {"type": "string"}},
     "additionalProperties": false}]})");
}

static constexpr OwnKind kTools = {readTools, toolsSchema};
static constexpr OwnKind kChoice = {readChoice, choiceSchema};
static constexpr OwnKind kFunctions = {readFunctions, functionsSchema};
static constexpr OwnKind kFunctionChoice = {readFunctionChoice,
                                            functionChoiceSchema};
static constexpr OwnKind kParallel = {
    [](J value, const std::string &name, const ParameterLimits &limits) {
      if (!value.is_boolean() && !limits.ignoreUnknown)
        throw ApiError(400, name + " must be a boolean", name);
      return ordered_json(value != false ||
                          !keepsPromise(name, "false", limits));
    },
    [](const ParameterLimits &limits) {
      if (limits.ignoreUnknown)
        return ordered_json::object();
      return limits.hasGrammars ? ordered_json{{"type", "boolean"}}
                                : ordered_json{{"const", true}};
    }};

// clang-format off
static constexpr Parameter kToolRows[] = {
    {.name = "tools", .kind = Kind::Own, .help = "Functions that the answer may call",
     .store = at<ToolParameters, &ToolParameters::tools>, .own = &kTools},
    {.name = "tool_choice", .kind = Kind::Own,
     .help = "none: the answer calls no tool; auto: it may call some; required, or a function with its name: it is calls; "
             "allowed_tools: the model sees these tools only",
     .store = at<ToolParameters, &ToolParameters::toolChoice>, .own = &kChoice},
    {.name = "parallel_tool_calls", .kind = Kind::Own, .help = "The answer may have several calls",
     .store = at<ToolParameters, &ToolParameters::isParallel>, .own = &kParallel},
    {.name = "functions", .kind = Kind::Own, .help = "The older form of tools; the answer has a function_call",
     .store = at<ToolParameters, &ToolParameters::setFunctions>, .own = &kFunctions},
    {.name = "function_call", .kind = Kind::Own, .help = "The same as tool_choice, for functions",
     .store = at<ToolParameters, &ToolParameters::toolChoice>, .own = &kFunctionChoice},
};
// clang-format on

/// Whether the parameter `name`, a choice, is there with tools of `of`, or
/// needs none.
static bool hasToolsOf(J body, const void *group, const char *name,
                       const char *of) {
  const auto &values = *static_cast<const ToolParameters *>(group);
  return !hasParameter(body, name) || values.toolChoice == "none" ||
         values.toolChoice == "auto" ||
         (hasParameter(body, of) && !values.tools.empty());
}

static constexpr ParameterRule kToolRules[] = {
    {"functions", "excludes tools and tool_choice",
     [](J body, const void *) {
       return (!hasParameter(body, "functions") &&
               !hasParameter(body, "function_call")) ||
              (!hasParameter(body, "tools") &&
               !hasParameter(body, "tool_choice"));
     }},
    {"function_call", "needs functions",
     [](J body, const void *group) {
       return hasToolsOf(body, group, "function_call", "functions");
     }},
    {"tool_choice", "needs tools",
     [](J body, const void *group) {
       return hasToolsOf(body, group, "tool_choice", "tools");
     },
     R"({"anyOf": [
       {"properties": {"tool_choice": {"enum": ["none", "auto", null]}}},
       {"required": ["tools"],
        "properties": {"tools": {"type": "array", "minItems": 1}}}
     ]})"},
};
const ParameterTable ToolParameters::table = {kToolRows, kToolRules};

void ToolParameters::setFunctions(J value) {
  tools = value;
  hasFunctions = !tools.empty();
}

ToolChoice ToolParameters::choice() const {
  ToolChoice choice = {.isParallel = isParallel};
  J mode = toolChoice.is_object() ? toolChoice["mode"] : toolChoice;
  if (mode.is_array()) {
    choice.kind = ToolChoice::Named;
    choice.name = mode[0];
  } else if (mode == "none") {
    choice.kind = ToolChoice::None;
  } else if (mode == "required") {
    choice.kind = ToolChoice::Required;
  }
  return choice;
}

ordered_json ToolParameters::shownTools() const {
  if (!toolChoice.is_object())
    return tools;
  J names = toolChoice["names"];
  const auto nameOf = [](J tool) -> J { return tool["function"]["name"]; };
  for (J name : names)
    if (std::ranges::find(tools, name, nameOf) == tools.end())
      throw ApiError(400,
                     "tool_choice has the name " +
                         quote(name.get<std::string>()) + ", which no tool has",
                     "tool_choice");
  ordered_json shown = ordered_json::array();
  for (J tool : tools)
    if (std::ranges::find(names, nameOf(tool)) != names.end())
      shown.push_back(tool);
  return shown;
}

//===----------------------------------------------------------------------===//
// Calls of messages
//===----------------------------------------------------------------------===//

/// The members of a call and of its function. Clients add the last ones to what
/// they got: they have no effect.
static constexpr std::array kCallMembers = std::to_array<std::string_view>(
    {"id", "type", "function", "index", "provider_specific_fields",
     "cache_control", "extra_content"});
static constexpr std::array kFunctionMembers = std::to_array<std::string_view>(
    {"name", "arguments", "parsed_arguments", "provider_specific_fields"});

static ordered_json toolCallOf(J value, const std::string &name,
                               bool ignoreUnknown) {
  const auto isWordOrNull = [&](const char *key) {
    J member = value.value(key, ordered_json());
    return member.is_null() || member.is_string();
  };
  if (!value.is_object() || !value.contains("function") ||
      !value["function"].is_object() ||
      !value["function"].value("name", ordered_json()).is_string())
    throw ApiError(
        400, name + " must have a function with a name and arguments", name);
  if (!isWordOrNull("id"))
    throw ApiError(400, name + ".id must be a string", name + ".id");
  J type = value.value("type", ordered_json());
  if (!type.is_null() && type != "function")
    throw ApiError(400, name + ".type must be function", name + ".type");
  J function = value["function"];
  if (!ignoreUnknown) {
    requireMembers(value, name, {kCallMembers.begin(), kCallMembers.end()});
    requireMembers(function, name + ".function",
                   {kFunctionMembers.begin(), kFunctionMembers.end()});
  }
  ordered_json call = {{"type", "function"}};
  if (value.contains("id"))
    call["id"] = value["id"];
  call["function"] = {{"name", function["name"]},
                      {"arguments", callArguments(function.value(
                                        "arguments", ordered_json()))}};
  return call;
}

ordered_json server::functionCallOf(J value, const std::string &name,
                                    bool ignoreUnknown) {
  return ordered_json::array(
      {toolCallOf({{"function", value}}, name, ignoreUnknown)});
}

ordered_json server::toolCallsOf(J value, const std::string &name,
                                 bool ignoreUnknown) {
  if (!value.is_array())
    throw ApiError(400, name + " must be an array of calls", name);
  ordered_json calls = ordered_json::array();
  for (size_t i = 0; i < value.size(); ++i)
    calls.push_back(toolCallOf(value[i], indexed(name, i), ignoreUnknown));
  return calls;
}

ordered_json server::toolCallsSchema(bool ignoreUnknown) {
  ordered_json schema = ordered_json::parse(R"({"type": "array", "items": {
    "type": "object", "required": ["function"],
    "properties": {
      "id": {"type": ["string", "null"]},
      "type": {"enum": ["function", null]},
      "function": {
        "type": "object", "required": ["name"],
        "properties": {
          "name": {"type": "string"},
          "arguments": {
            "description": "An object, or a string with one; others count as {}"}}}}}})");
  const auto addMembers = [&](ordered_json &object,
                              std::span<const std::string_view> members) {
    for (const std::string_view member : members)
      object["properties"].emplace(std::string(member), ordered_json::object());
    object["additionalProperties"] = ignoreUnknown;
  };
  addMembers(schema["items"], kCallMembers);
  addMembers(schema["items"]["properties"]["function"], kFunctionMembers);
  return schema;
}
