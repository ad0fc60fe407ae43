//===- ParameterSchema.cpp - JSON schema of parameters --------------------===//

#include "server/Parameters.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using Kind = ParameterKind;

ordered_json server::orNull(ordered_json schema) {
  if (schema.contains("enum"))
    schema["enum"].push_back(nullptr);
  // An empty schema is one of any value.
  if (schema.empty() || schema.contains("enum"))
    return schema;
  return {{"anyOf", ordered_json::array({schema, {{"type", "null"}}})}};
}

static ordered_json anyOf(std::initializer_list<ordered_json> schemas) {
  return {{"anyOf", ordered_json::array_t(schemas)}};
}

static ordered_json listOf(const ordered_json &items, int64_t least,
                           std::optional<int64_t> most = {}) {
  ordered_json schema = {{"type", "array"}, {"items", items}};
  if (least > 0)
    schema["minItems"] = least;
  if (most)
    schema["maxItems"] = *most;
  return schema;
}

static ordered_json stringOf(int64_t least, int64_t most) {
  ordered_json schema = {{"type", "string"}};
  if (least > 0)
    schema["minLength"] = least;
  if (most > 0)
    schema["maxLength"] = most;
  return schema;
}

static ordered_json numberOf(const char *type, const ordered_json &least,
                             const ordered_json &most) {
  return {{"type", type}, {"minimum", least}, {"maximum", most}};
}

static ordered_json integerOf(int64_t least, int64_t most) {
  return numberOf("integer", least, most);
}

/// A regular expression for the whole numbers from 0 to `most`, as
/// std::to_string writes them.
static std::string patternUpTo(int64_t most) {
  const std::string digits = std::to_string(most);
  const auto anyDigits = [](size_t count) {
    return count == 0 ? "" : "[0-9]{" + std::to_string(count) + "}";
  };
  std::string pattern = "^(0";
  for (size_t size = 1; size < digits.size(); ++size)
    pattern += "|[1-9]" + anyDigits(size - 1);
  // Those with as many digits that first differ from `most` at `i`.
  for (size_t i = 0; i < digits.size(); ++i) {
    const char first = i == 0 ? '1' : '0';
    if (digits[i] > first)
      pattern += "|" + digits.substr(0, i) + "[" + first + "-" +
                 static_cast<char>(digits[i] - 1) + "]" +
                 anyDigits(digits.size() - i - 1);
  }
  return pattern + "|" + digits + ")$";
}

static ordered_json promptsOf(const Parameter &row,
                              const ParameterLimits &limits,
                              const ordered_json &id) {
  const ordered_json text =
      stringOf((row.traits & kOfEmbedding) && limits.emptyInput ? 0 : 1, 0);
  ordered_json object = {{"type", "object"},
                         {"minProperties", 1},
                         {"maxProperties", 1},
                         {"additionalProperties", false}};
  for (const std::string_view name : kPromptTexts)
    object["properties"][std::string(name)] = text;
  const ordered_json parts = listOf(anyOf({id, stringOf(1, 0)}), 1);
  ordered_json mixed = parts;
  mixed["contains"] = id;
  return anyOf({text, object, mixed,
                listOf(anyOf({text, object, parts}), 1, kMostInputs)});
}

static ordered_json flagsOf(const Parameter &row, bool takesUnknown) {
  ordered_json members = ordered_json::object();
  for (const Parameter &member : row.members)
    members[std::string(member.name)] = {
        {"type", ordered_json::array({"boolean", "null"})},
        {"description", member.help}};
  return {{"type", "object"},
          {"properties", members},
          {"additionalProperties", takesUnknown}};
}

/// The schema of a value besides null.
static ordered_json schemaOf(const Parameter &row,
                             const ParameterLimits &limits) {
  const ordered_json id = integerOf(0, limits.vocabSize - 1);
  switch (row.kind) {
  case Kind::Boolean:
    return {{"type", "boolean"}};
  case Kind::Integer:
    return integerOf(static_cast<int64_t>(row.least),
                     row.bound ? limits.*row.bound
                               : static_cast<int64_t>(row.most));
  case Kind::Seed:
    return numberOf("integer", std::numeric_limits<int64_t>::min(),
                    std::numeric_limits<uint64_t>::max());
  case Kind::Number:
    return numberOf("number", row.least, row.most);
  case Kind::Biases:
    return {{"type", "object"},
            {"propertyNames", {{"pattern", patternUpTo(limits.vocabSize - 1)}}},
            {"additionalProperties", numberOf("number", row.least, row.most)}};
  case Kind::String:
    return stringOf(static_cast<int64_t>(row.least),
                    static_cast<int64_t>(row.most));
  case Kind::Word:
    return {{"enum", ordered_json::parse(row.values)}};
  case Kind::Model: {
    if (limits.models.empty())
      return {{"type", "string"}};
    ordered_json names = limits.models;
    names.push_back("");
    return {{"enum", names}};
  }
  case Kind::Ids:
    return listOf(id, 0);
  case Kind::Object:
    return {{"type", "object"}};
  case Kind::Strings: {
    ordered_json text = stringOf(1, 0);
    text["maxLength"] = kMostStopCharacters;
    return anyOf({text, listOf(text, 0, mostStrings(row))});
  }
  case Kind::Words: {
    ordered_json schema =
        listOf({{"enum", ordered_json::parse(row.values)}}, 0);
    schema["uniqueItems"] = true;
    return schema;
  }
  case Kind::Prompts:
    return promptsOf(row, limits, id);
  case Kind::Flags:
    return flagsOf(row, limits.takesUnknown());
  case Kind::Own:
    return row.own->schema(limits);
  case Kind::Ignored:
    return ordered_json::object();
  case Kind::Neutral:
    return limits.ignoreUnknown
               ? ordered_json::object()
               : ordered_json{{"enum", ordered_json::parse(row.values)}};
  }
  return {};
}

static ordered_json propertyOf(const Parameter &row,
                               const ParameterLimits &limits) {
  ordered_json schema = schemaOf(row, limits);
  if ((row.traits & kOfThinking) && !limits.thinks)
    schema = row.kind == Kind::Integer ? ordered_json{{"const", -1}}
                                       : ordered_json{{"type", "null"}};
  // null counts as absent.
  if (!(row.traits & kRequired))
    schema = orNull(schema);
  if (row.kind == Kind::Ignored)
    schema["description"] = "Accepted without effect";
  else if (!row.help.empty())
    schema["description"] = row.help;
  if (!row.group.empty())
    schema["x-group"] = row.group;
  if (const auto found = limits.defaults.find(row.name);
      found != limits.defaults.end())
    schema["default"] = *found;
  return schema;
}

ordered_json server::parameterSchema(const ParameterLimits &limits,
                                     std::span<const ParameterGroup> groups) {
  ordered_json schema = {{"type", "object"},
                         {"properties", ordered_json::object()},
                         {"additionalProperties", limits.takesUnknown()}};
  for (const ParameterGroup &group : groups)
    for (const Parameter &row : group.table->rows) {
      schema["properties"][std::string(row.name)] = propertyOf(row, limits);
      if (row.traits & kRequired)
        schema["required"].push_back(row.name);
    }
  for (const ParameterGroup &group : groups)
    for (const ParameterRule &rule : group.table->rules)
      if (!rule.schema.empty())
        schema["allOf"].push_back(ordered_json::parse(rule.schema));
  return schema;
}
