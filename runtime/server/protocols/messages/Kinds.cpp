//===- Kinds.cpp - Values of the Messages API -----------------------------===//

#include "server/protocols/messages/Kinds.h"

#include "model/ToolFormat.h"
#include "server/Conversation.h"
#include "server/http/ApiError.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>

using namespace qwen;
using namespace qwen::server;
using namespace qwen::server::messages;
using nlohmann::ordered_json;

using J = const ordered_json &;

[[noreturn]] static void refuseValue(const std::string &name,
                                     const std::string &needed) {
  throw ApiError(400, name + " must be " + needed, name);
}

static void requireObject(J value, const std::string &name) {
  if (!value.is_object())
    refuseValue(name, "an object");
}

/// The member "type" of an object.
static std::string typeIn(J value, const std::string &name) {
  requireObject(value, name);
  J type = value.value("type", ordered_json());
  if (!type.is_string())
    refuseValue(name + ".type", "a string");
  return type;
}

//===----------------------------------------------------------------------===//
// Tools
//===----------------------------------------------------------------------===//

/// A tool as a chat template reads it.
static ordered_json functionOf(J tool, const std::string &name) {
  ordered_json function = {{"name", tool.value("name", ordered_json())}};
  if (hasParameter(tool, "description")) {
    if (!tool["description"].is_string())
      refuseValue(name + ".description", "a string");
    function["description"] = tool["description"];
  }
  if (!hasParameter(tool, "input_schema") || !tool["input_schema"].is_object())
    refuseValue(name + ".input_schema", "a JSON schema");
  function["parameters"] = tool["input_schema"];
  if (tool.value("strict", ordered_json()) == true)
    function["strict"] = true;
  ordered_json written = {{"type", "function"}, {"function", function}};
  try {
    toolsOf(ordered_json::array({written}), name);
  } catch (const Error &) {
    // The schema is an object, so that its name is at fault.
    refuseValue(name + ".name", "a string, neither empty nor too long");
  }
  return written;
}

static ordered_json readToolList(J value, const std::string &name,
                                 const ParameterLimits &limits) {
  if (!value.is_array())
    refuseValue(name, "an array of tools");
  ordered_json tools = ordered_json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string each = indexed(name, i);
    requireObject(value[i], each);
    const std::string type =
        hasParameter(value[i], "type") ? typeIn(value[i], each) : "custom";
    if (type == "custom")
      tools.push_back(functionOf(value[i], each));
    else
      limits.note(each + " of type " + quote(type.substr(0, 100)) +
                  " is left out: the server does not run tools");
  }
  if (!tools.empty() && !limits.noTools.empty()) {
    if (!limits.ignoreUnknown)
      throw ApiError(400, limits.noTools, name);
    tools.clear();
  }
  return tools;
}

static ordered_json toolListSchema(const ParameterLimits &limits) {
  ordered_json tool = ordered_json::parse(R"({"anyOf": [
    {"type": "object", "required": ["name", "input_schema"],
     "properties": {
       "type": {"enum": ["custom", null]},
       "name": {"type": "string", "minLength": 1, "maxLength": 256},
       "description": {"type": ["string", "null"]},
       "input_schema": {"type": "object"}}},
    {"type": "object", "required": ["type"],
     "properties": {
       "type": {"type": "string", "not": {"const": "custom"},
                "description": "A tool of another type has no effect"}}}]})");
  if (!limits.hasGrammars)
    tool["anyOf"][0]["properties"]["strict"] = {{"not", {{"const", true}}}};
  if (!limits.noTools.empty() && !limits.ignoreUnknown)
    tool = tool["anyOf"][1];
  return {{"type", "array"}, {"items", tool}};
}

namespace {
struct ChoiceType {
  std::string_view name;
  ToolChoice::Kind kind;
  /// Whether only a grammar keeps it.
  bool isPromise;
};
} // namespace

static constexpr std::array kChoiceTypes = std::to_array<ChoiceType>({
    {"auto", ToolChoice::Auto, false},
    {"none", ToolChoice::None, false},
    {"any", ToolChoice::Required, true},
    {"tool", ToolChoice::Named, true},
});

static ordered_json readToolChoice(J value, const std::string &name,
                                   const ParameterLimits & /*limits*/) {
  const auto *const found =
      std::ranges::find(kChoiceTypes, typeIn(value, name), &ChoiceType::name);
  if (found == kChoiceTypes.end())
    refuseValue(name + ".type", "auto, any, tool or none");
  ordered_json choice = {{"kind", found->kind}, {"name", ""}};
  if (found->kind == ToolChoice::Named) {
    choice["name"] = value.value("name", ordered_json());
    if (!choice["name"].is_string())
      refuseValue(name + ".name", "the name of a tool");
  }
  J single = value.value("disable_parallel_tool_use", ordered_json());
  if (!single.is_null() && !single.is_boolean())
    refuseValue(name + ".disable_parallel_tool_use", "a boolean");
  choice["isParallel"] = single != true;
  return choice;
}

static ordered_json toolChoiceSchema(const ParameterLimits &limits) {
  const bool calls = limits.hasGrammars && limits.noTools.empty();
  ordered_json kinds = ordered_json::array();
  for (const ChoiceType &type : kChoiceTypes) {
    if (type.isPromise && !calls)
      continue;
    ordered_json kind = {
        {"type", "object"},
        {"required", ordered_json::array({"type"})},
        {"properties",
         {{"type", {{"const", type.name}}},
          {"disable_parallel_tool_use",
           limits.hasGrammars
               ? ordered_json{{"type", {"boolean", "null"}}}
               : ordered_json{
                     {"enum", ordered_json::array({false, nullptr})}}}}}};
    if (type.kind == ToolChoice::Named) {
      kind["required"].push_back("name");
      kind["properties"]["name"] = {{"type", "string"}};
    }
    kinds.push_back(kind);
  }
  return {{"anyOf", kinds}};
}

//===----------------------------------------------------------------------===//
// Thinking and output
//===----------------------------------------------------------------------===//

static ordered_json readThinking(J value, const std::string &name,
                                 const ParameterLimits &limits) {
  // Clients have a new word for a way to think from time to time.
  ordered_json thinking = {{"thinks", typeIn(value, name) != "disabled"}};
  if (!hasParameter(value, "budget_tokens"))
    return thinking;
  J budget = value["budget_tokens"];
  if (!budget.is_number_integer() || budget < 0 || budget > INT32_MAX)
    refuseValue(name + ".budget_tokens",
                "an integer from 0 to " + std::to_string(INT32_MAX));
  if (limits.thinks && thinking["thinks"] == true)
    thinking["budget"] = budget;
  return thinking;
}

static ordered_json thinkingSchema(const ParameterLimits & /*limits*/) {
  return ordered_json::parse(R"({
    "type": "object", "required": ["type"],
    "properties": {
      "type": {"type": "string",
               "description": "disabled, enabled or adaptive; others count as adaptive"},
      "budget_tokens": {"anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 2147483647},
        {"type": "null"}]}}})");
}

static ordered_json readOutputFormat(J value, const std::string &name,
                                     const ParameterLimits &limits) {
  const std::string type = typeIn(value, name);
  if (type != "json_schema")
    refuseValue(name + ".type", "json_schema, not " + quote(type));
  requireMembers(value, name, {"type", "schema"}, limits);
  if (!hasParameter(value, "schema") || !value["schema"].is_object())
    refuseValue(name + ".schema", "a JSON schema");
  return schemaGrammar(value["schema"], name + ".schema", limits);
}

static ordered_json outputFormatSchema(const ParameterLimits &limits) {
  if (!limits.hasGrammars && !limits.ignoreUnknown)
    return {{"type", "null"}};
  return ordered_json::parse(R"({
    "type": "object", "required": ["type", "schema"],
    "properties": {
      "type": {"const": "json_schema"}, "schema": {"type": "object"}}})");
}

static ordered_json readOutputConfig(J value, const std::string &name,
                                     const ParameterLimits &limits) {
  requireObject(value, name);
  requireMembers(value, name, {"effort", "format"}, limits);
  ordered_json config = ordered_json::object();
  if (hasParameter(value, "effort")) {
    if (!value["effort"].is_string())
      refuseValue(name + ".effort", "a string");
    config["effort"] = value["effort"];
  }
  if (hasParameter(value, "format"))
    config["grammar"] =
        readOutputFormat(value["format"], name + ".format", limits);
  return config;
}

static ordered_json outputConfigSchema(const ParameterLimits &limits) {
  return {{"type", "object"},
          {"properties",
           {{"effort",
             {{"type", {"string", "null"}},
              {"description",
               "A word for the chat template, if it reads reasoning_effort"}}},
            {"format", orNull(outputFormatSchema(limits))}}}};
}

//===----------------------------------------------------------------------===//
// Reasoning of earlier turns
//===----------------------------------------------------------------------===//

/// Edits of other types, which take away what a long prompt has too much of,
/// have no effect: clients shorten the conversation themselves.
static ordered_json readContextManagement(J value, const std::string &name,
                                          const ParameterLimits &limits) {
  constexpr std::string_view kClearThinking = "clear_thinking";
  requireObject(value, name);
  ordered_json keeps;
  J edits = value.value("edits", ordered_json());
  if (!edits.is_null() && !edits.is_array())
    refuseValue(name + ".edits", "an array");
  for (J edit : edits)
    if (const std::string type = typeIn(edit, name + ".edits");
        !type.starts_with(kClearThinking))
      limits.note(name + " of type " + printable(type.substr(0, 200)) +
                  " has no effect");
    else
      // A number of turns is less than all.
      keeps = edit.value("keep", ordered_json()) == "all";
  return keeps;
}

static ordered_json contextManagementSchema(const ParameterLimits &) {
  return ordered_json::parse(R"({
    "type": "object", "properties": {"edits": {
      "type": ["array", "null"], "items": {
        "type": "object", "required": ["type"],
        "properties": {
          "type": {"type": "string"},
          "keep": {"description": "all, of clear_thinking_20251015: the reasoning of all turns stays, if the chat template has a choice"}}}}}})");
}

const OwnKind messages::kContextManagement = {readContextManagement,
                                              contextManagementSchema};
const OwnKind messages::kToolList = {readToolList, toolListSchema};
const OwnKind messages::kToolChoice = {readToolChoice, toolChoiceSchema};
const OwnKind messages::kThinkingConfig = {readThinking, thinkingSchema};
const OwnKind messages::kOutputConfig = {readOutputConfig, outputConfigSchema};
const OwnKind messages::kOutputFormat = {readOutputFormat, outputFormatSchema};
