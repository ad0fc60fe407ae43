//===- XmlCalls.cpp - Calls with a tag for each parameter -----------------===//
//
// <function=f>
// <parameter=a>
// 1
// </parameter>
// </function>
//
// A value is plain text. The schema of the tool says what it stands for.
//
//===----------------------------------------------------------------------===//

#include "text/CallFormat.h"
#include "text/LarkText.h"
#include "text/SchemaTypes.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

using namespace qwen;
using nlohmann::ordered_json;

using J = const ordered_json &;

using Begin = CallReader::Begin;

static constexpr std::string_view kFunction = "<function=",
                                  kFunctionEnd = "</function>",
                                  kParameter = "<parameter=",
                                  kParameterEnd = "</parameter>";
/// What a name of a function ends at, and its maximum number of bytes.
static constexpr std::string_view kNameEnds = "> \t\r\n<\"";
static constexpr size_t kMostName = 256;

/// What follows `text`: one of `words` behind white space. Yes also if nothing
/// follows in the answer.
template <size_t N>
static Begin follows(std::string_view text, bool isLast,
                     const std::string_view (&words)[N]) {
  const std::string_view rest = text.substr(spaceBefore(text));
  if (rest.empty() && isLast)
    return Begin::Yes;
  Begin found = Begin::No;
  for (const std::string_view word : words)
    found = std::max(found, beginsWith(rest, word));
  return found == Begin::Maybe && isLast ? Begin::No : found;
}

namespace {

class XmlReader final : public CallReader {
public:
  using CallReader::CallReader;

  Begin begin(std::string_view text, bool isBare, size_t &size) override;

private:
  size_t read(std::string_view text, bool isLast,
              std::string &arguments) override;
  /// A tag between values. Returns 0 if there is none yet.
  size_t readTag(std::string_view text, bool isLast, std::string &arguments);
  /// A part of a value, or its end.
  size_t readValue(std::string_view text, bool isLast, std::string &arguments);
  void beginValue(const std::string &key, std::string &arguments);
  void addToValue(std::string_view text, std::string &arguments);
  void endValue(std::string &arguments);
  void endCall(std::string &arguments);

  bool hasParameters = false;
  bool isInValue = false;
  /// Whether the value has begun behind the newline of its tag.
  bool hasValueBegun = false;
  SchemaTypes types = 0;
  /// A value whose type is not known before its end.
  std::string value;
};

} // namespace

Begin XmlReader::begin(std::string_view text, bool isBare, size_t &size) {
  if (const Begin begun = beginsWith(text, kFunction); begun != Begin::Yes)
    return begun;
  const std::string_view rest = text.substr(kFunction.size());
  const size_t end = rest.find_first_of(kNameEnds);
  if (end == std::string_view::npos)
    return rest.size() > kMostName ? Begin::No : Begin::Maybe;
  if (rest[end] != '>' || end == 0)
    return Begin::No;
  toolName = rest.substr(0, end);
  size = kFunction.size() + end + 1;
  return isBare && !findTool(tools, toolName) ? Begin::No : Begin::Yes;
}

void XmlReader::beginValue(const std::string &key, std::string &arguments) {
  arguments += std::exchange(hasParameters, true) ? ", \"" : "{\"";
  arguments += jsonEscaped(key) + "\": ";
  const Tool *const tool = findTool(tools, toolName);
  types =
      tool ? propertyTypes(tool->parameters, key) : SchemaTypes{kStringType};
  if (types == kStringType)
    arguments += '"';
  isInValue = true;
  hasValueBegun = false;
  value.clear();
}

void XmlReader::addToValue(std::string_view text, std::string &arguments) {
  if (types == kStringType)
    arguments += jsonEscaped(text);
  else
    value += text;
  // A string that may be null streams, too.
  if (types == (kStringType | kNullType) &&
      !std::string_view("null").starts_with(value) &&
      !std::string_view("None").starts_with(value)) {
    types = kStringType;
    arguments += '"' + jsonEscaped(value);
  }
}

void XmlReader::endValue(std::string &arguments) {
  arguments += types == kStringType ? "\"" : typedValue(value, types);
  isInValue = false;
}

void XmlReader::endCall(std::string &arguments) {
  arguments += hasParameters ? "}" : "{}";
  end();
}

size_t XmlReader::readTag(std::string_view text, bool isLast,
                          std::string &arguments) {
  const size_t space = spaceBefore(text);
  const std::string_view rest = text.substr(space);
  if (rest.starts_with(kFunctionEnd)) {
    endCall(arguments);
    return space + kFunctionEnd.size();
  }
  if (rest.starts_with(kCallClose)) {
    endCall(arguments);
    return space;
  }
  if (rest.starts_with(kParameter)) {
    const size_t end = rest.find('>');
    if (end == std::string_view::npos)
      return 0;
    beginValue(
        std::string(rest.substr(kParameter.size(), end - kParameter.size())),
        arguments);
    return space + end + 1;
  }
  constexpr std::string_view tags[] = {kFunctionEnd, kCallClose, kParameter};
  if (follows(rest, false, tags) == Begin::No || (isLast && !rest.empty()))
    breakOff();
  return 0;
}

size_t XmlReader::readValue(std::string_view text, bool isLast,
                            std::string &arguments) {
  if (!hasValueBegun && !text.empty()) {
    hasValueBegun = true;
    if (text.front() == '\n')
      return 1;
  }
  // The first tag that ends the value, or that may.
  constexpr std::string_view afterParameter[] = {kParameter, kFunctionEnd,
                                                 kCallClose};
  constexpr std::string_view afterFunction[] = {kCallClose};
  size_t from = 0;
  while (true) {
    const size_t tag = text.find("</", from);
    const std::string_view rest = text.substr(std::min(tag, text.size()));
    const bool isEnd = rest.starts_with(kParameterEnd);
    Begin ends = Begin::No;
    if (isEnd)
      ends = follows(rest.substr(kParameterEnd.size()), isLast, afterParameter);
    else if (rest.starts_with(kFunctionEnd))
      ends = follows(rest.substr(kFunctionEnd.size()), isLast, afterFunction);
    else if (!rest.empty() && !isLast)
      ends = std::min(Begin::Maybe, std::max(beginsWith(rest, kParameterEnd),
                                             beginsWith(rest, kFunctionEnd)));
    if (ends == Begin::No && tag != std::string_view::npos) {
      from = tag + 1;
      continue;
    }
    size_t size = text.size() - rest.size();
    if (tag == std::string_view::npos && !isLast && text.ends_with('<'))
      --size;
    // The newline before a tag belongs to it.
    const bool hasNewline =
        size > 0 && text[size - 1] == '\n' && (!isLast || ends == Begin::Yes);
    addToValue(text.substr(0, size - (hasNewline ? 1 : 0)), arguments);
    if (ends != Begin::Yes)
      return size - (hasNewline ? 1 : 0);
    endValue(arguments);
    return size + (isEnd ? kParameterEnd.size() : 0);
  }
}

size_t XmlReader::read(std::string_view text, bool isLast,
                       std::string &arguments) {
  size_t size = 0;
  while (!isDone() && !isBroken() && size < text.size()) {
    const std::string_view rest = text.substr(size);
    const bool wasInValue = isInValue;
    const size_t taken = isInValue ? readValue(rest, isLast, arguments)
                                   : readTag(rest, isLast, arguments);
    size += taken;
    if (!taken && isInValue == wasInValue)
      break;
  }
  return size;
}

std::unique_ptr<CallReader> qwen::makeXmlReader(const Tools &tools) {
  return std::make_unique<XmlReader>(tools);
}

//===----------------------------------------------------------------------===//
// Grammars
//===----------------------------------------------------------------------===//

/// Keywords that forbid no value.
static bool isNote(std::string_view key) {
  constexpr std::string_view kNotes[] = {
      "title",      "description", "default",   "examples",
      "$comment",   "readOnly",    "writeOnly", "$schema",
      "deprecated", "$defs",       "$id",       "definitions"};
  return std::ranges::count(kNotes, key);
}

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

/// Refuses references that mean something else in a schema of its own.
static void requireReferences(J part, const std::string &of) {
  if (part.is_object() && part.contains("$ref") && part["$ref"].is_string()) {
    const auto &text = part["$ref"].get_ref<const std::string &>();
    if (!text.starts_with("#/$defs/") && !text.starts_with("#/definitions/"))
      refuse("$ref " + text, of);
  }
  if (part.is_structured())
    for (J each : part)
      requireReferences(each, of);
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
  };

  void requireSchema() const;
  /// Refuses a schema that says more than which types its values have.
  void requirePlain(J schema, const std::string &of, int depth) const;
  /// A value of a part of the property's schema, and the tag behind it.
  std::string valueOf(const Value &value, J schema, int depth);
  /// A string that is written as it is.
  std::string rawText(J schema, const std::string &of);
  /// One of these values.
  std::string oneOf(J values, const Value &of) const;
  std::string document(J schema, const std::string &of);
  /// The name of a new terminal.
  std::string terminal(const std::string &text);

  const Tool &tool;
  const std::string rule;
  std::string texts;
  size_t terminals = 0;
  /// Number of bytes of documents' schemas; each has all definitions.
  size_t size = 0;
};
} // namespace

static constexpr std::string_view kValueEnd = "\n</parameter>\n";
/// A text that does not end its value. `length` is empty, or "{a,b}".
static std::string plainText(const std::string &length) {
  const std::string text =
      larkTextWithout(std::array{kParameterEnd, kCallClose}, true);
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
  ordered_json whole = schema;
  const std::string text = schema.dump();
  if (text.find("\"$ref\"") != std::string::npos)
    for (const char *key : {"$defs", "definitions"})
      if (tool.parameters.contains(key))
        whole[key] = tool.parameters[key];
  requireReferences(whole, of);
  std::string written = larkDocument(whole) + " " + larkString(kValueEnd);
  size += written.size();
  if (size > kMostBytes)
    throw Error("the schemas of parameters have more than " +
                std::to_string(kMostBytes) + " bytes");
  return written;
}

std::string XmlRules::oneOf(J values, const Value &of) const {
  std::string all;
  for (J value : values) {
    const std::string text =
        value.is_string() ? value.get<std::string>() : value.dump();
    // What the reader takes for another value is left out.
    const std::string read = of.types == kStringType
                                 ? '"' + jsonEscaped(text) + '"'
                                 : typedValue(text, of.types);
    if (ordered_json::parse(read) == value &&
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
  std::string call =
      rule + ": " + larkString(std::string(kFunction) + tool.name + ">\n");
  const auto tagOf = [](const std::string &key) {
    return std::string(kParameter) + key + ">\n";
  };
  J properties = tool.parameters.value("properties", ordered_json::object());
  if (isLoose) {
    // Any parameters, whose values the reader makes JSON of.
    std::string names;
    if (properties.is_object())
      for (const auto &[key, value] : properties.items())
        if (key.find('>') == std::string::npos)
          names += (names.empty() ? "" : " | ") + larkString(tagOf(key));
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
      const std::string text = valueOf({key, value, types}, value, 0);
      texts += name;
      texts += ": " + larkString(tagOf(key)) + " " + text + "\n";
    }
  }
  return call + " " + larkString(kFunctionEnd) + "\n" + texts;
}

std::string qwen::writeXmlRules(const Tool &tool, const std::string &rule,
                                bool isLoose) {
  return XmlRules(tool, rule).write(isLoose);
}
