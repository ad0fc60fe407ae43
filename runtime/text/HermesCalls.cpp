//===- HermesCalls.cpp - Calls as JSON ------------------------------------===//
//
// {"name": "f", "arguments": {"a": 1}}
//
//===----------------------------------------------------------------------===//

#include "text/CallFormat.h"
#include "text/JsonScanner.h"
#include "text/LarkDocument.h"
#include "text/LarkText.h"
#include "text/SchemaTypes.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

using namespace qwen;

namespace {

using Begin = CallReader::Begin;

/// Takes parts of an object from the front of a text. `begin` becomes Maybe
/// where the text ends within a part, and No where it has another one.
struct Cursor {
  std::string_view text;
  size_t at = 0;
  Begin begin = Begin::Yes;

  bool stop(Begin why) {
    begin = why;
    return false;
  }
  void space() { at += spaceBefore(text.substr(at)); }
  bool take(char byte) {
    space();
    if (at == text.size())
      return stop(Begin::Maybe);
    return text[at] == byte ? ++at > 0 : stop(Begin::No);
  }
  /// A value, as JSON.
  std::optional<std::string> value() {
    space();
    JsonScanner scanner;
    std::string out;
    at += scanner.push(text.substr(at), out);
    if (scanner.isDone())
      return out;
    stop(scanner.isBad() ? Begin::No : Begin::Maybe);
    return std::nullopt;
  }
  std::optional<std::string> string() {
    space();
    if (at < text.size() && text[at] != '"') {
      stop(Begin::No);
      return std::nullopt;
    }
    const std::optional<std::string> json = value();
    if (!json)
      return std::nullopt;
    return nlohmann::json::parse(*json).get<std::string>();
  }
  /// A key with its colon.
  std::optional<std::string> key() {
    std::optional<std::string> found = string();
    return found && take(':') ? found : std::nullopt;
  }
};

/// A member of the object besides the name, with its value as JSON.
struct Member {
  std::string key, json;
};

class HermesReader final : public CallReader {
public:
  using CallReader::CallReader;

  Begin begin(std::string_view text, bool isBare, size_t &size) override;

private:
  size_t read(std::string_view text, bool isLast,
              std::string &arguments) override;
  /// A member of the object, or its end.
  size_t readMember(std::string_view text, bool isLast, std::string &arguments);
  /// A part of a member's value.
  size_t readValue(std::string_view text, std::string &arguments);
  /// Passes on the value of "arguments", which is complete; null says nothing.
  void setArguments(const std::string &json, std::string &arguments);
  /// Passes on the arguments that stand elsewhere, at the end of the object.
  void findArguments(std::string &arguments);

  /// Those that have been read. Null counts as absent.
  std::vector<Member> members;
  /// The scanner of the value that is read now, whose key is the last member's.
  std::optional<JsonScanner> scanner;
  /// Whether it passes as it comes. Others, such as a string with JSON, pass
  /// when they are complete.
  bool passes = false;
  bool hasBegun = false, hasArguments = false;
};

} // namespace

static constexpr std::string_view kName = "name", kArguments = "arguments";
/// Other names that models give the arguments, as they know them from schemas
/// and from other formats.
static constexpr std::string_view kOtherNames[] = {"parameters", "params",
                                                   "args", "input"};
/// Members that say something of the call itself.
static constexpr std::string_view kCallNotes[] = {"id", "type"};

Begin HermesReader::begin(std::string_view text, bool isBare, size_t &size) {
  members.clear();
  Cursor cursor{text};
  if (!cursor.take('{'))
    return cursor.begin;
  while (true) {
    const std::optional<std::string> key = cursor.key();
    if (!key || (isBare && *key != kName && *key != kArguments))
      return key ? Begin::No : cursor.begin;
    if (*key == kName)
      break;
    std::optional<std::string> value = cursor.value();
    if (!value || !cursor.take(','))
      return cursor.begin;
    members.push_back({*key, *std::move(value)});
  }
  const std::optional<std::string> name = cursor.string();
  if (!name || name->empty())
    return name ? Begin::No : cursor.begin;
  size = cursor.at;
  if (isBare && !findTool(tools, *name))
    return Begin::No;
  // A person may have the name of a tool.
  if (isBare && members.empty()) {
    if (!cursor.take(','))
      return cursor.begin;
    const std::optional<std::string> next = cursor.key();
    if (!next || *next != kArguments)
      return next ? Begin::No : cursor.begin;
  }
  toolName = *name;
  return Begin::Yes;
}

/// The object that a value is, or that its text is.
static std::optional<std::string> objectOf(const std::string &json) {
  const auto value = nlohmann::ordered_json::parse(json);
  if (value.is_object())
    return json;
  if (!value.is_string())
    return std::nullopt;
  const auto text = value.get<std::string>();
  const std::string_view rest =
      std::string_view(text).substr(spaceBefore(text));
  JsonScanner inner;
  std::string scanned;
  const size_t size = inner.push(rest, scanned);
  if (!inner.isDone() || !rest.starts_with('{') ||
      size + spaceBefore(rest.substr(size)) != rest.size())
    return std::nullopt;
  return scanned;
}

void HermesReader::setArguments(const std::string &json,
                                std::string &arguments) {
  if (nlohmann::ordered_json::parse(json) == nullptr)
    return;
  const std::optional<std::string> object = objectOf(json);
  hasArguments = true;
  arguments += object ? *object : json;
  if (!object)
    breakOff();
}

void HermesReader::findArguments(std::string &arguments) {
  const Tool *const tool = findTool(tools, toolName);
  const auto isParameter = [&](const std::string &key) {
    return tool && hasProperty(tool->parameters, key);
  };
  hasArguments = true;
  for (const Member &member : members)
    if (std::ranges::count(kOtherNames, member.key) && !isParameter(member.key))
      if (const std::optional<std::string> object = objectOf(member.json)) {
        arguments += *object;
        return;
      }
  // The last member of a key counts.
  std::unordered_map<std::string_view, const Member *> last;
  for (const Member &member : members)
    last[member.key] = &member;
  std::string flat;
  for (const Member &member : members)
    if (last[member.key] == &member && member.key != kArguments &&
        (isParameter(member.key) ||
         !std::ranges::count(kCallNotes, member.key)))
      flat += (flat.empty() ? "\"" : ", \"") + jsonEscaped(member.key) +
              "\": " + member.json;
  arguments += "{" + flat + "}";
}

size_t HermesReader::readValue(std::string_view text, std::string &arguments) {
  Member &member = members.back();
  const size_t size = scanner->push(text, passes ? arguments : member.json);
  if (scanner->isBad()) {
    breakOff();
  } else if (scanner->isDone()) {
    scanner.reset();
    hasArguments |= passes;
    if (member.key == kArguments && !hasArguments)
      setArguments(member.json, arguments);
  }
  return size;
}

size_t HermesReader::readMember(std::string_view text, bool isLast,
                                std::string &arguments) {
  const auto endHere = [&](size_t size) {
    if (!hasArguments)
      findArguments(arguments);
    end();
    return size;
  };
  Cursor cursor{text};
  if (cursor.take('}'))
    return endHere(cursor.at);
  if (cursor.begin == Begin::No) {
    cursor.begin = Begin::Yes;
    std::optional<std::string> key;
    if (cursor.take(','))
      key = cursor.key();
    if (key) {
      cursor.space();
      if (cursor.at < text.size()) {
        passes = *key == kArguments && !hasArguments && text[cursor.at] == '{';
        members.push_back({*std::move(key), ""});
        scanner.emplace();
        return cursor.at;
      }
      cursor.begin = Begin::Maybe;
    }
  }
  if (cursor.begin == Begin::Maybe && !isLast)
    return 0;
  // The arguments are whole, and only the object has no end.
  const std::string_view rest = text.substr(spaceBefore(text));
  if ((hasArguments && rest.empty()) ||
      (!members.empty() && rest.starts_with(kCallClose)))
    return endHere(text.size() - rest.size());
  if (!isLast && beginsWith(rest, kCallClose) == Begin::Maybe)
    return 0;
  breakOff();
  return 0;
}

size_t HermesReader::read(std::string_view text, bool isLast,
                          std::string &arguments) {
  size_t size = 0;
  if (!std::exchange(hasBegun, true))
    for (const Member &member : members)
      if (member.key == kArguments && !hasArguments)
        setArguments(member.json, arguments);
  while (!isDone() && !isBroken()) {
    const std::string_view rest = text.substr(size);
    if (!scanner) {
      const size_t taken = readMember(rest, isLast, arguments);
      size += taken;
      if (!taken && !scanner)
        return size;
      continue;
    }
    size += readValue(rest, arguments);
    if (scanner && !isBroken())
      return size;
  }
  return size;
}

std::unique_ptr<CallReader> qwen::makeHermesReader(const Tools &tools) {
  return std::make_unique<HermesReader>(tools);
}

/// What a call has before its arguments.
static std::string beforeArguments(const Tool &tool) {
  return "{\"name\": \"" + jsonEscaped(tool.name) + "\", \"arguments\": ";
}

/// What the arguments of a tool with a grammar have before its string.
static std::string beforeString(const TextGrammar &grammar) {
  return "{\"" + jsonEscaped(grammar.parameter) + "\": ";
}

TextPlace qwen::hermesTextPlace(const Tool &tool) {
  return {.before = "\n" + beforeArguments(tool) +
                    beforeString(tool.grammar.value()) + "\"",
          .end = "\"",
          .isJson = true};
}

std::string qwen::writeHermesRules(const Tool &tool, const std::string &rule,
                                   bool isLoose) {
  using nlohmann::ordered_json;
  std::string before = beforeArguments(tool), behind = "}";
  ordered_json schema = ordered_json::object();
  if (tool.grammar) {
    before += beforeString(*tool.grammar);
    behind += "}";
    schema["type"] = "string";
  } else {
    if (!isLoose)
      schema = tool.parameters;
    requireObjects(schema);
    schema["type"] = "object";
  }
  const LarkDocument document = larkDocument(schema, schema, rule + "-doc");
  return rule + ": " + larkString(before) + " " + document.expression + " " +
         larkString(behind) + "\n" + document.rules;
}
