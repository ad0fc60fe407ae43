//===- SchemaTypes.cpp - The types that a JSON schema allows --------------===//

#include "text/SchemaTypes.h"

#include "text/JsonScanner.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

using namespace qwen;
using nlohmann::ordered_json;

using J = const ordered_json &;

namespace {
struct TypeName {
  std::string_view name;
  SchemaTypes type;
};
} // namespace

static constexpr TypeName kTypeNames[] = {
    {"null", kNullType},       {"boolean", kBooleanType},
    {"integer", kIntegerType}, {"number", kIntegerType | kNumberType},
    {"string", kStringType},   {"array", kArrayType},
    {"object", kObjectType},
};

static SchemaTypes typeOfName(J name) {
  const auto *const found =
      name.is_string()
          ? std::ranges::find(kTypeNames, name.get_ref<const std::string &>(),
                              &TypeName::name)
          : std::end(kTypeNames);
  return found == std::end(kTypeNames) ? SchemaTypes{0} : found->type;
}

static SchemaTypes typeOfValue(J value) {
  switch (value.type()) {
  case ordered_json::value_t::null:
    return kNullType;
  case ordered_json::value_t::boolean:
    return kBooleanType;
  case ordered_json::value_t::string:
    return kStringType;
  case ordered_json::value_t::array:
    return kArrayType;
  case ordered_json::value_t::object:
    return kObjectType;
  case ordered_json::value_t::number_float: {
    const auto number = value.get<double>();
    return number == std::trunc(number) ? kIntegerType : kNumberType;
  }
  case ordered_json::value_t::discarded:
    return 0;
  default:
    return kIntegerType;
  }
}

const ordered_json *qwen::resolve(J root, J reference) {
  if (!reference.is_string())
    return nullptr;
  const auto &text = reference.get_ref<const std::string &>();
  if (!text.starts_with('#'))
    return nullptr;
  try {
    const ordered_json::json_pointer pointer(text.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const ordered_json::exception &) {
    return nullptr;
  }
}

/// Walks through the parts of a schema, each of them once, as references may
/// make a cycle. Their number is bounded, as a chain of references may be long.
static SchemaTypes typesOf(J root, J schema,
                           std::unordered_set<const void *> &parts) {
  constexpr size_t kMostParts = 1000;
  if (!schema.is_object() || parts.size() == kMostParts ||
      !parts.insert(&schema).second)
    return 0;
  SchemaTypes types = 0;
  for (const auto &[key, value] : schema.items()) {
    if (key == "type" && value.is_array())
      for (J name : value)
        types |= typeOfName(name);
    else if (key == "type")
      types |= typeOfName(value);
    else if (key == "enum" && value.is_array())
      for (J each : value)
        types |= typeOfValue(each);
    else if (key == "const")
      types |= typeOfValue(value);
    else if (key == "nullable" && value == true)
      types |= kNullType;
    else if ((key == "anyOf" || key == "oneOf" || key == "allOf") &&
             value.is_array())
      for (J each : value)
        types |= typesOf(root, each, parts);
    else if (key == "$ref")
      if (const ordered_json *const target = resolve(root, value))
        types |= typesOf(root, *target, parts);
  }
  return types;
}

SchemaTypes qwen::schemaTypes(J root, J schema) {
  std::unordered_set<const void *> parts;
  return typesOf(root, schema, parts);
}

bool qwen::hasProperty(J schema, const std::string &key) {
  return schema.is_object() && schema.contains("properties") &&
         schema["properties"].is_object() && schema["properties"].contains(key);
}

SchemaTypes qwen::propertyTypes(J schema, const std::string &key) {
  SchemaTypes types = 0;
  if (hasProperty(schema, key))
    types = schemaTypes(schema, schema["properties"][key]);
  return (types & ~kNullType) ? types : types | kStringType;
}

std::string qwen::jsonEscaped(std::string_view text) {
  const std::string json = ordered_json(text).dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
  return json.substr(1, json.size() - 2);
}

std::string qwen::typedValue(std::string_view text, SchemaTypes types) {
  std::string_view value = text;
  const size_t first = value.find_first_not_of(" \t\r\n");
  value =
      first == std::string_view::npos
          ? std::string_view()
          : value.substr(first, value.find_last_not_of(" \t\r\n") + 1 - first);
  if ((types & kNullType) && (value == "null" || value == "None"))
    return "null";
  if ((types & kBooleanType) && (value == "True" || value == "False"))
    return value == "True" ? "true" : "false";
  JsonScanner scanner;
  std::string json;
  const size_t size = scanner.push(value, json);
  scanner.finish(json);
  if (size == value.size() && scanner.isDone() &&
      (typeOfValue(ordered_json::parse(json, nullptr, false)) & types &
       ~kStringType))
    return json;
  return '"' + jsonEscaped(text) + '"';
}
