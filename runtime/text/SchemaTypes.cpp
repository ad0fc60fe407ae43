//===- SchemaTypes.cpp - The types that a JSON schema allows --------------===//

#include "text/SchemaTypes.h"

#include "text/JsonScanner.h"
#include "text/PythonLiteral.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
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

bool qwen::isNote(std::string_view keyword) {
  constexpr std::string_view kNotes[] = {
      "title",      "description", "default",   "examples",
      "$comment",   "readOnly",    "writeOnly", "$schema",
      "deprecated", "$defs",       "$id",       "definitions"};
  return std::ranges::count(kNotes, keyword);
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

namespace {
/// What the parts of a schema say.
struct Parts {
  /// Each counts once, as references may make a cycle. Their number is bounded,
  /// as a chain of references may be long.
  std::unordered_set<const void *> seen = {};
  /// The values that "enum" and "const" name.
  std::vector<const ordered_json *> values = {};
};
} // namespace

/// Walks through the parts of a schema.
static SchemaTypes typesOf(J root, J schema, Parts &parts) {
  constexpr size_t kMostParts = 1000;
  if (!schema.is_object() || parts.seen.size() == kMostParts ||
      !parts.seen.insert(&schema).second)
    return 0;
  SchemaTypes types = 0;
  const auto addValue = [&](J value) {
    parts.values.push_back(&value);
    return typeOfValue(value);
  };
  for (const auto &[key, value] : schema.items()) {
    if (key == "type" && value.is_array())
      for (J name : value)
        types |= typeOfName(name);
    else if (key == "type")
      types |= typeOfName(value);
    else if (key == "enum" && value.is_array())
      for (J each : value)
        types |= addValue(each);
    else if (key == "const")
      types |= addValue(value);
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
  Parts parts;
  return typesOf(root, schema, parts);
}

namespace {
/// A keyword that is about values of a type.
struct AboutType {
  std::string_view keyword;
  SchemaTypes types;
};
} // namespace

static constexpr SchemaTypes kNumbers = kIntegerType | kNumberType;
static constexpr AboutType kAboutTypes[] = {
    {"properties", kObjectType},
    {"required", kObjectType},
    {"additionalProperties", kObjectType},
    {"patternProperties", kObjectType},
    {"propertyNames", kObjectType},
    {"minProperties", kObjectType},
    {"maxProperties", kObjectType},
    {"items", kArrayType},
    {"prefixItems", kArrayType},
    {"minItems", kArrayType},
    {"maxItems", kArrayType},
    {"uniqueItems", kArrayType},
    {"contains", kArrayType},
    {"pattern", kStringType},
    {"format", kStringType},
    {"minLength", kStringType},
    {"maxLength", kStringType},
    {"minimum", kNumbers},
    {"maximum", kNumbers},
    {"exclusiveMinimum", kNumbers},
    {"exclusiveMaximum", kNumbers},
    {"multipleOf", kNumbers},
};

/// The types of a schema that names none.
static SchemaTypes impliedTypes(J schema) {
  SchemaTypes types = 0;
  if (schema.is_object())
    for (const AboutType &each : kAboutTypes)
      types |= schema.contains(each.keyword) ? each.types : 0;
  const bool saysNothing =
      schema == true || (schema.is_object() && !schema.contains("$ref"));
  return types || !saysNothing
             ? types
             : SchemaTypes{kStringType | kArrayType | kObjectType};
}

bool qwen::hasProperty(J schema, const std::string &key) {
  return schema.is_object() && schema.contains("properties") &&
         schema["properties"].is_object() && schema["properties"].contains(key);
}

SchemaTypes qwen::propertyTypes(J schema, const std::string &key) {
  SchemaTypes types = 0;
  if (hasProperty(schema, key)) {
    J property = schema["properties"][key];
    types = schemaTypes(schema, property);
    types = types ? types : impliedTypes(property);
  }
  return (types & ~kNullType) ? types : types | kStringType;
}

std::vector<const ordered_json *> qwen::propertyValues(J schema,
                                                       const std::string &key) {
  Parts parts;
  if (hasProperty(schema, key))
    typesOf(schema, schema["properties"][key], parts);
  return std::move(parts.values);
}

std::string qwen::jsonEscaped(std::string_view text) {
  const std::string json = ordered_json(text).dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
  return json.substr(1, json.size() - 2);
}

/// The text without white space around it.
static std::string_view withoutSpace(std::string_view text) {
  return trimmed(text, " \t\r\n");
}

/// The JSON of a text that is null or a boolean.
static std::optional<std::string> wordOf(std::string_view text,
                                         SchemaTypes types) {
  // Only Python's own words may be a string's.
  constexpr size_t kLongest = 5;
  std::string word(text.substr(0, kLongest + 1));
  if (!(types & kStringType))
    for (char &letter : word)
      letter =
          static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  if ((types & kNullType) && (word == "null" || word == "None" ||
                              (word == "none" && !(types & kStringType))))
    return "null";
  if ((types & kBooleanType) &&
      (word == "True" || word == "true" || word == "False" || word == "false"))
    return word.back() == 'e' && word.size() == 4 ? "true" : "false";
  return std::nullopt;
}

/// The JSON of a text that is one JSON value.
static std::optional<std::string> scanned(std::string_view text) {
  JsonScanner scanner;
  std::string json;
  const size_t size = scanner.push(text, json);
  scanner.finish(json);
  if (size != text.size() || !scanner.isDone())
    return std::nullopt;
  return json;
}

/// The JSON of a text without white space around it that stands for a value of
/// one of `types` other than a string.
static std::optional<std::string>
jsonOf(std::string_view text, SchemaTypes types, bool isInner = false) {
  if (const std::optional<std::string> word = wordOf(text, types))
    return word;
  const auto isGood = [&](J value) {
    return (typeOfValue(value) & types & ~kStringType) != 0;
  };
  std::optional<std::string> json = scanned(text);
  const auto value = json ? ordered_json::parse(*json, nullptr, false)
                          : ordered_json(ordered_json::value_t::discarded);
  if (isGood(value))
    return json;
  if (types & kStringType)
    return std::nullopt;
  if (value.is_string() && !isInner)
    return jsonOf(withoutSpace(value.get_ref<const std::string &>()), types,
                  true);
  if (!(types & (kArrayType | kObjectType)))
    return std::nullopt;
  const std::optional<std::string> python = jsonOfPython(text);
  json = python ? scanned(*python) : std::nullopt;
  if (json && isGood(ordered_json::parse(*json, nullptr, false)))
    return json;
  return std::nullopt;
}

std::string qwen::typedValue(std::string_view text, SchemaTypes types,
                             std::span<const ordered_json *const> values) {
  const std::optional<std::string> json = jsonOf(withoutSpace(text), types);
  const auto isNamed = [&](const ordered_json &value) {
    return std::ranges::any_of(
        values, [&](const ordered_json *each) { return *each == value; });
  };
  const auto quoted = [](std::string_view string) {
    return '"' + jsonEscaped(string) + '"';
  };
  if (json && (values.empty() || isNamed(ordered_json::parse(*json))))
    return *json;
  for (const std::string_view string : {text, withoutSpace(text)})
    if (isNamed(ordered_json(string)))
      return quoted(string);
  return json ? *json : quoted(text);
}
