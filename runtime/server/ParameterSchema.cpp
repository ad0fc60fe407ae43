//===- ParameterSchema.cpp - JSON schema of parameters --------------------===//

#include "server/Parameters.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;
using Kind = ParameterKind;

static ordered_json schemaOf(const Parameter &row) {
  ordered_json text = {{"type", "string"}};
  ordered_json ids = {{"type", "array"},
                      {"items", {{"type", "integer"}, {"minimum", 0}}}};
  ordered_json number = {
      {"type", row.kind == Kind::Integer ? "integer" : "number"},
      {"minimum", row.least},
      {"maximum", row.most}};
  const auto listOf = [](const ordered_json &items) {
    return ordered_json{{"type", "array"}, {"items", items}};
  };
  switch (row.kind) {
  case Kind::Boolean:
    return {{"type", "boolean"}};
  case Kind::Integer:
  case Kind::Number:
    return number;
  case Kind::Biases:
    return {{"type", "object"}, {"additionalProperties", number}};
  case Kind::String:
    return text;
  case Kind::Ids:
    return ids;
  case Kind::Object:
    return {{"type", "object"}};
  case Kind::Strings:
    return {{"oneOf", ordered_json::array({text, listOf(text)})}};
  case Kind::Prompts:
    return {
        {"oneOf", ordered_json::array({text, listOf(text), ids, listOf(ids)})}};
  case Kind::Documents:
    return listOf({{"oneOf", ordered_json::array(
                                 {text,
                                  {{"type", "object"},
                                   {"required", ordered_json::array({"text"})},
                                   {"properties", {{"text", text}}}}})}});
  case Kind::Messages:
    return listOf({{"type", "object"},
                   {"required", ordered_json::array({"role"})},
                   {"properties", {{"role", text}, {"content", text}}}});
  case Kind::Ignored:
    return {{"description", "Accepted without effect"}};
  case Kind::Neutral:
    return {{"enum", ordered_json::array({ordered_json::parse(row.neutral)})}};
  }
  return {};
}

ordered_json server::parameterSchema(ParameterSet set) {
  ordered_json properties = ordered_json::object();
  for (const Parameter &row : parameterTable()) {
    if (!(row.sets & set))
      continue;
    ordered_json schema = schemaOf(row);
    if (!row.help.empty())
      schema["description"] = row.help;
    properties[std::string(row.name)] = schema;
  }
  return {{"type", "object"}, {"properties", properties}};
}
