//===- HermesCalls.cpp - Calls as JSON ------------------------------------===//
//
// {"name": "f", "arguments": {"a": 1}}
//
//===----------------------------------------------------------------------===//

#include "text/CallFormat.h"
#include "text/JsonScanner.h"
#include "text/LarkText.h"
#include "text/SchemaTypes.h"

#include <optional>
#include <utility>

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

class HermesReader final : public CallReader {
public:
  using CallReader::CallReader;

  Begin begin(std::string_view text, bool isBare, size_t &size) override;

private:
  size_t read(std::string_view text, bool isLast,
              std::string &arguments) override;
  /// A member of the object, or its end.
  size_t readMember(std::string_view text, bool isLast, std::string &arguments);
  size_t readArguments(std::string_view text, std::string &arguments);
  /// The value of "arguments" when it is complete.
  void setArguments(const std::string &json, std::string &arguments);

  /// The value of "arguments" before the name.
  std::optional<std::string> early;
  /// Of a value that is read: of "arguments", or of another key.
  std::optional<JsonScanner> scanner;
  bool isArguments = false;
  /// Whether the arguments pass as they come. Others, such as a string with
  /// JSON, pass when they are complete.
  bool passes = false;
  std::string held;
  bool hasArguments = false;
};

} // namespace

static constexpr std::string_view kName = "name", kArguments = "arguments";

Begin HermesReader::begin(std::string_view text, bool isBare, size_t &size) {
  early.reset();
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
    if (*key == kArguments)
      early = std::move(value);
  }
  const std::optional<std::string> name = cursor.string();
  if (!name || name->empty())
    return name ? Begin::No : cursor.begin;
  size = cursor.at;
  if (isBare && !findTool(tools, *name))
    return Begin::No;
  // A person may have the name of a tool.
  if (isBare && !early) {
    if (!cursor.take(','))
      return cursor.begin;
    const std::optional<std::string> next = cursor.key();
    if (!next || *next != kArguments)
      return next ? Begin::No : cursor.begin;
  }
  toolName = *name;
  return Begin::Yes;
}

void HermesReader::setArguments(const std::string &json,
                                std::string &arguments) {
  const auto value = nlohmann::ordered_json::parse(json);
  hasArguments = true;
  if (value.is_object() || value.is_null()) {
    arguments += value.is_null() ? "{}" : json;
    return;
  }
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const std::string_view rest =
        std::string_view(text).substr(spaceBefore(text));
    JsonScanner inner;
    std::string scanned;
    const size_t size = inner.push(rest, scanned);
    if (inner.isDone() && rest.starts_with('{') &&
        size + spaceBefore(rest.substr(size)) == rest.size()) {
      arguments += scanned;
      return;
    }
  }
  arguments += json;
  breakOff();
}

size_t HermesReader::readArguments(std::string_view text,
                                   std::string &arguments) {
  const size_t size = scanner->push(text, passes ? arguments : held);
  if (scanner->isBad()) {
    arguments += std::exchange(held, {});
    breakOff();
  } else if (scanner->isDone()) {
    scanner.reset();
    if (passes)
      hasArguments = true;
    else
      setArguments(std::exchange(held, {}), arguments);
  }
  return size;
}

size_t HermesReader::readMember(std::string_view text, bool isLast,
                                std::string &arguments) {
  const auto endHere = [&](size_t size) {
    if (!std::exchange(hasArguments, true))
      arguments += "{}";
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
        isArguments = *key == kArguments && !hasArguments;
        passes = text[cursor.at] == '{';
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
  if (hasArguments && (rest.empty() || rest.starts_with(kCallClose)))
    return endHere(text.size() - rest.size());
  if (!isLast && beginsWith(rest, kCallClose) == Begin::Maybe)
    return 0;
  breakOff();
  return 0;
}

size_t HermesReader::read(std::string_view text, bool isLast,
                          std::string &arguments) {
  size_t size = 0;
  if (early)
    setArguments(*std::exchange(early, {}), arguments);
  while (!isDone() && !isBroken()) {
    const std::string_view rest = text.substr(size);
    if (!scanner) {
      const size_t taken = readMember(rest, isLast, arguments);
      size += taken;
      if (!taken && !scanner)
        return size;
      continue;
    }
    if (isArguments) {
      size += readArguments(rest, arguments);
    } else {
      std::string none;
      size += scanner->push(rest, none);
      if (scanner->isBad())
        breakOff();
      if (scanner->isDone())
        scanner.reset();
    }
    if (scanner && !isBroken())
      return size;
  }
  return size;
}

std::unique_ptr<CallReader> qwen::makeHermesReader(const Tools &tools) {
  return std::make_unique<HermesReader>(tools);
}

std::string qwen::writeHermesRules(const Tool &tool, const std::string &rule,
                                   bool isLoose) {
  using nlohmann::ordered_json;
  ordered_json schema = ordered_json::object();
  if (!isLoose)
    schema = tool.parameters;
  requireObjects(schema);
  schema["type"] = "object";
  const std::string before =
      "{\"name\": \"" + jsonEscaped(tool.name) + "\", \"arguments\": ";
  return rule + ": " + larkString(before) + " " + larkDocument(schema) +
         " \"}\"\n";
}
