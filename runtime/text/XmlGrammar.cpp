//===- XmlGrammar.cpp - Grammars of calls with a tag for each parameter ---===//

#include "text/CallFormat.h"
#include "text/LarkDocument.h"
#include "text/LarkText.h"
#include "text/SchemaTypes.h"
#include "text/XmlTags.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/JsonDigits.h"

#include <algorithm>
#include <cctype>
#include <vector>

using namespace qwen;
using namespace qwen::xml;
using nlohmann::ordered_json;

using J = const ordered_json &;

[[noreturn]] static void refuse(const std::string &keyword,
                                const std::string &of) {
  throw Error("the format xml cannot keep " + keyword + " of " + of);
}

/// Refuses keywords of a schema besides notes and `kept`.
static void requireKeywords(J schema,
                            std::initializer_list<std::string_view> kept,
                            const std::string &of) {
  for (const auto &[key, value] : schema.items())
    if (!isNote(key) && !std::ranges::count(kept, key))
      refuse(key, of);
}

/// A schema, or the one that it is another name for.
static const ordered_json &followed(J root, J schema) {
  constexpr int kMostReferences = 16;
  const ordered_json *found = &schema;
  for (int i = 0; i < kMostReferences; ++i) {
    const ordered_json *next = nullptr;
    for (const auto &[key, value] : found->items()) {
      if (isNote(key))
        continue;
      if (next)
        return *found;
      if (key == "$ref")
        next = resolve(root, value);
      else if (key == "allOf" && value.is_array() && value.size() == 1)
        next = &value[0];
      if (!next)
        return *found;
    }
    if (!next || !next->is_object())
      return *found;
    found = next;
  }
  return *found;
}

namespace {
/// Writes the rules of a call.
class XmlRules {
public:
  XmlRules(const Tool &calledTool, const std::string &firstRule)
      : tool(calledTool), rule(firstRule) {}

  std::string write(bool isLoose);

private:
  static constexpr int kMostDepth = 16;
  static constexpr size_t kMostBytes = size_t{1} << 20;
  /// A property, and the types that the reader gives it.
  struct Value {
    const std::string &key;
    J schema;
    SchemaTypes types;
    std::vector<const ordered_json *> values;
  };

  void requireSchema() const;
  /// Refuses a schema that says more than which types its values have.
  void requirePlain(J schema, const std::string &of, int depth) const;
  /// A value of a part of the property's schema, and the tag behind it.
  std::string valueOf(const Value &value, J schema, int depth);
  /// A string that is written as it is.
  std::string rawText(J schema, const std::string &of);
  /// A text that does not end its value. `length` is empty, or "{a,b}".
  std::string plainText(const std::string &length) const;
  /// One of these values.
  std::string oneOf(J values, const Value &of) const;
  std::string document(J schema, const std::string &of);
  /// The name of a new terminal.
  std::string terminal(const std::string &text);

  const Tool &tool;
  const std::string rule;
  std::string texts;
  size_t terminals = 0, documents = 0;
  /// Number of bytes of documents; each has all definitions.
  size_t size = 0;
};
} // namespace

static constexpr std::string_view kValueEnd = "\n</parameter>\n";

/// What a call begins with.
static std::string functionTag(const Tool &tool) {
  return std::string(kFunction) + tool.name + ">\n";
}

static std::string parameterTag(const std::string &key) {
  return std::string(kParameter) + key + ">\n";
}

/// The tags of parameters, which end a value whose own tag is missing, or what
/// they all begin with where these are many or have letters of expressions.
static std::vector<std::string> tagsOf(J properties) {
  constexpr size_t kMostTags = 32;
  const auto isPlain = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_';
  };
  std::vector<std::string> tags;
  if (!properties.is_object())
    return tags;
  for (const auto &[key, value] : properties.items()) {
    if (tags.size() == kMostTags || !std::ranges::all_of(key, isPlain))
      return {std::string(kParameter)};
    tags.push_back(std::string(kParameter) + key + ">");
  }
  return tags;
}

std::string XmlRules::plainText(const std::string &length) const {
  const std::vector<std::string> tags =
      tagsOf(tool.parameters.value("properties", ordered_json()));
  std::vector<std::string_view> words = {kParameterEnd, kCallClose};
  words.insert(words.end(), tags.begin(), tags.end());
  const std::string text = larkTextWithout(words, true);
  return length.empty() ? text : "(/(?s:." + length + ")/ & " + text + ")";
}

std::string XmlRules::terminal(const std::string &text) {
  std::string name = rule;
  for (char &letter : name)
    letter =
        static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  name += "-" + std::to_string(terminals++);
  texts += name + ": " + text + " " + larkString(kValueEnd) + "\n";
  return name;
}

std::string XmlRules::document(J schema, const std::string &of) {
  LarkDocument written;
  try {
    written = larkDocument(tool.parameters, schema,
                           rule + "-doc" + std::to_string(documents++));
  } catch (const Error &error) {
    throw Error(of + ": " + error.what());
  }
  size += written.expression.size() + written.rules.size();
  if (size > kMostBytes)
    throw Error("the schemas of parameters have more than " +
                std::to_string(kMostBytes) + " bytes");
  texts += written.rules;
  return written.expression + " " + larkString(kValueEnd);
}

std::string XmlRules::oneOf(J values, const Value &of) const {
  std::string all;
  for (J value : values) {
    const std::string text =
        value.is_string() ? value.get<std::string>() : dumpWithDigits(value);
    // What the reader takes for another value is left out.
    const std::string read = of.types == kStringType
                                 ? '"' + jsonEscaped(text) + '"'
                                 : typedValue(text, of.types, of.values);
    if (parseWithDigits(read, "a value") == value &&
        text.find("</") == std::string::npos)
      all += (all.empty() ? "(" : " | ") +
             larkString(text + std::string(kValueEnd));
  }
  if (all.empty())
    refuse("enum", "the parameter " + of.key);
  return all + ")";
}

std::string XmlRules::rawText(J schema, const std::string &of) {
  const auto length = [&](const char *name, const std::string &other) {
    J value = schema.value(name, ordered_json());
    if (!value.is_null() && !value.is_number_unsigned())
      refuse(name, of);
    return value.is_null() ? other : value.dump();
  };
  requireKeywords(schema, {"type", "minLength", "maxLength"}, of);
  const std::string least = length("minLength", "0"),
                    most = length("maxLength", "");
  const bool isFree = least == "0" && most.empty();
  return terminal(plainText(isFree ? "" : "{" + least + "," + most + "}"));
}

void XmlRules::requirePlain(J schema, const std::string &of, int depth) const {
  J found = schema.is_object() ? followed(tool.parameters, schema) : schema;
  if (found == true)
    return;
  if (!found.is_object() || depth > kMostDepth)
    refuse("anyOf", of);
  requireKeywords(found, {"type", "anyOf"}, of);
  if (found.contains("anyOf"))
    for (J part : found["anyOf"])
      requirePlain(part, of, depth + 1);
}

std::string XmlRules::valueOf(const Value &value, J schema, int depth) {
  const std::string of = "the parameter " + value.key;
  J found = schema.is_object() ? followed(tool.parameters, schema) : schema;
  if (found == true)
    return valueOf(value, ordered_json::object(), depth);
  if (!found.is_object() || depth > kMostDepth)
    refuse(found.is_object() ? "anyOf" : found.dump(), of);
  if (found.value("type", ordered_json()) == "null") {
    requireKeywords(found, {"type"}, of);
    return oneOf(ordered_json::array({nullptr}), value);
  }
  const SchemaTypes types = schemaTypes(tool.parameters, found);
  if (types && !(types & kStringType))
    return document(schema, of);
  if (found.contains("const") || found.contains("enum")) {
    requireKeywords(found, {"type", "enum", "const"}, of);
    const SchemaTypes most = found.contains("type")
                                 ? schemaTypes({}, {{"type", found["type"]}})
                                 : SchemaTypes{UINT8_MAX};
    ordered_json values = ordered_json::array();
    for (J each : found.contains("const")
                      ? ordered_json::array({found["const"]})
                      : found["enum"])
      if (schemaTypes({}, {{"const", each}}) & most)
        values.push_back(each);
    return oneOf(values, value);
  }
  if (found.contains("anyOf")) {
    requireKeywords(found, {"type", "anyOf"}, of);
    std::string all;
    for (J part : found["anyOf"])
      all += (all.empty() ? "(" : " | ") + valueOf(value, part, depth + 1);
    return all + ")";
  }
  // In a text that may stand for another type, the reader finds any value of
  // that type.
  if (value.types & ~(kStringType | kNullType))
    requirePlain(value.schema, of, 0);
  return rawText(found, of);
}

void XmlRules::requireSchema() const {
  const std::string of = "the parameters";
  J schema = tool.parameters;
  requireKeywords(
      schema, {"type", "properties", "required", "additionalProperties"}, of);
  J properties = schema.value("properties", ordered_json::object());
  J required = schema.value("required", ordered_json::array());
  requireObjects(schema);
  if (!properties.is_object())
    refuse("properties", of);
  for (const auto &[key, value] : properties.items())
    if (key.find('>') != std::string::npos)
      refuse("the name " + key, of);
  for (J key : required)
    if (!key.is_string() || !properties.contains(key.get<std::string>()))
      refuse("required " + key.dump(), of);
}

std::string XmlRules::write(bool isLoose) {
  if (tool.name.find_first_of(kNameEnds) != std::string::npos ||
      tool.name.size() > kMostName)
    refuse("a name with spaces or brackets, or of more than " +
               std::to_string(kMostName) + " bytes,",
           "a tool");
  std::string call = rule + ": " + larkString(functionTag(tool));
  J properties = tool.parameters.value("properties", ordered_json::object());
  if (isLoose) {
    // Any parameters, whose values the reader makes JSON of.
    std::string names;
    if (properties.is_object())
      for (const auto &[key, value] : properties.items())
        if (key.find('>') == std::string::npos)
          names += (names.empty() ? "" : " | ") + larkString(parameterTag(key));
    if (names.empty())
      names = larkString(kParameter) + " /[^<>\\s\"]+/ " + larkString(">\n");
    call += " " + rule + "-any*";
    texts += rule + "-any: (" + names + ") " + terminal(plainText("")) + "\n";
  } else {
    requireSchema();
    J required = tool.parameters.value("required", ordered_json::array());
    size_t count = 0;
    for (const auto &[key, value] : properties.items()) {
      const std::string name = rule + "-" + std::to_string(count++);
      call += " " + name +
              (std::ranges::count(required, ordered_json(key)) ? "" : "?");
      const SchemaTypes types = propertyTypes(tool.parameters, key);
      const std::string text = valueOf(
          {key, value, types, propertyValues(tool.parameters, key)}, value, 0);
      texts += name;
      texts += ": " + larkString(parameterTag(key)) + " " + text + "\n";
    }
  }
  return call + " " + larkString(kFunctionEnd) + "\n" + texts;
}

std::string qwen::writeXmlRules(const Tool &tool, const std::string &rule,
                                bool isLoose) {
  return XmlRules(tool, rule).write(isLoose);
}

TextPlace qwen::xmlTextPlace(const Tool &tool) {
  return {.before = "\n" + functionTag(tool) +
                    parameterTag(tool.grammar.value().parameter),
          .end = std::string(kValueEnd.substr(0, kValueEnd.size() - 1))};
}
