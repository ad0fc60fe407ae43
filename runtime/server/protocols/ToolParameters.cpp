//===- ToolParameters.cpp - Tools and their calls in requests -------------===//

#include "server/protocols/ToolParameters.h"

#include "model/ToolFormat.h"
#include "server/http/ApiError.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;

/// Refuses a value of the parameter `name`, a promise that only a grammar
/// keeps.
[[noreturn]] static void refuse(const std::string &name, const char *value,
                                const char *accepted) {
  throw ApiError(400,
                 name + value +
                     " needs a grammar, which is not supported yet; " +
                     accepted,
                 name);
}

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
  for (size_t i = 0; i < value.size(); ++i)
    if (!limits.ignoreUnknown &&
        value[i]["function"].value("strict", ordered_json()) == true)
      refuse(indexed(name, i) + ".function.strict", " true",
             "accepted is false");
  return value;
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
          "parameters": {"type": ["object", "null"]},
          "strict": {"not": {"const": true}}}}}})");
  return schema;
}

static ordered_json readChoice(J value, const std::string &name,
                               const ParameterLimits &limits) {
  if (value == "none" || value == "auto")
    return value;
  if (limits.ignoreUnknown)
    return "auto";
  if (value == "required" || value.is_object())
    refuse(name, value.is_object() ? " with a name" : " required",
           "accepted are none and auto");
  throw ApiError(400, name + " must be none or auto", name);
}

static constexpr OwnKind kTools = {readTools, toolsSchema};
static constexpr OwnKind kChoice = {
    readChoice, [](const ParameterLimits &limits) {
      return limits.ignoreUnknown ? ordered_json::object()
                                  : ordered_json{{"enum", {"none", "auto"}}};
    }};
static constexpr OwnKind kParallel = {
    [](J value, const std::string &name, const ParameterLimits &limits) {
      if (value == false && !limits.ignoreUnknown)
        refuse(name, " false", "accepted is true");
      if (!value.is_boolean() && !limits.ignoreUnknown)
        throw ApiError(400, name + " must be a boolean", name);
      return value;
    },
    [](const ParameterLimits &limits) {
      return limits.ignoreUnknown ? ordered_json::object()
                                  : ordered_json{{"const", true}};
    }};

// clang-format off
static constexpr Parameter kToolRows[] = {
    {.name = "tools", .kind = Kind::Own, .help = "Functions that the answer may call",
     .store = at<ToolParameters, &ToolParameters::tools>, .own = &kTools},
    {.name = "tool_choice", .kind = Kind::Own, .help = "none: the answer calls no tool; auto: it may call some",
     .store = at<ToolParameters, &ToolParameters::setChoice>, .own = &kChoice},
    {.name = "parallel_tool_calls", .kind = Kind::Own, .help = "The answer may have several calls", .own = &kParallel},
};
// clang-format on
const ParameterTable ToolParameters::table = {kToolRows};

//===----------------------------------------------------------------------===//
// Calls of messages
//===----------------------------------------------------------------------===//

/// The arguments of a call: an object, or the text of one.
static ordered_json argumentsOf(J value, const std::string &name) {
  if (value.is_object())
    return value;
  const auto *const text = value.get_ptr<const std::string *>();
  if (value.is_null() || (text && text->empty()))
    return ordered_json::object();
  try {
    if (text)
      return parseJsonObject<ordered_json>(*text, name, kRequestJson);
  } catch (const Error &error) {
    throw ApiError(400, error.what(), name);
  }
  throw ApiError(400, name + " must be an object, or a string with one", name);
}

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
    requireMembers(value, name, {"id", "type", "index", "function"});
    requireMembers(function, name + ".function", {"name", "arguments"});
  }
  ordered_json call = {{"type", "function"}};
  if (value.contains("id"))
    call["id"] = value["id"];
  call["function"] = {
      {"name", function["name"]},
      {"arguments", argumentsOf(function.value("arguments", ordered_json()),
                                name + ".function.arguments")}};
  return call;
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
      "index": {},
      "function": {
        "type": "object", "required": ["name"],
        "properties": {
          "name": {"type": "string"},
          "arguments": {
            "type": ["object", "string", "null"],
            "description": "An object, or a string with one"}}}}}})");
  schema["items"]["additionalProperties"] = ignoreUnknown;
  schema["items"]["properties"]["function"]["additionalProperties"] =
      ignoreUnknown;
  return schema;
}
