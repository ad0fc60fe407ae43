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
#include "text/SchemaTypes.h"
#include "text/XmlTags.h"

#include <algorithm>
#include <utility>
#include <vector>

using namespace qwen;
using namespace qwen::xml;
using nlohmann::ordered_json;

using Begin = CallReader::Begin;

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
  /// Whether the value ends before the tag at `at` or may do so. `next` becomes
  /// the place from which on the search goes on if it does not.
  Begin endsAt(std::string_view text, size_t at, bool isLast, size_t &next);
  /// Whether a tag of a parameter begins `text`: one that the tool has, if its
  /// schema names any.
  Begin beginsParameter(std::string_view text) const;
  /// Whether the function or the call ends, or a parameter follows.
  Begin followsParameter(std::string_view text, bool isLast) const;
  void beginValue(const std::string &key, std::string &arguments);
  void addToValue(std::string_view text, std::string &arguments);
  void endValue(std::string &arguments);
  void endCall(std::string &arguments);

  bool hasParameters = false;
  /// The tool that is called, or null, and the parameters that have begun.
  const Tool *tool = nullptr;
  std::vector<std::string> given;
  /// Whether the parameter has had a value before. The first one counts, as it
  /// may have left, and names of an object come once.
  bool isRepeated = false;
  bool isInValue = false;
  /// Whether the value has begun behind the newline of its tag.
  bool hasValueBegun = false;
  /// Whether no part of it has been read, and the tag of the next parameter may
  /// begin its first line.
  bool isValueEmpty = true;
  SchemaTypes types = 0;
  std::vector<const ordered_json *> values;
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
  isRepeated = std::ranges::count(given, key) > 0;
  std::string name = std::exchange(hasParameters, true) ? ", \"" : "{\"";
  name += jsonEscaped(key) + "\": ";
  tool = findTool(tools, toolName);
  types =
      tool ? propertyTypes(tool->parameters, key) : SchemaTypes{kStringType};
  values.clear();
  if (tool)
    values = propertyValues(tool->parameters, key);
  given.push_back(key);
  if (types == kStringType)
    name += '"';
  if (!isRepeated)
    arguments += name;
  isInValue = true;
  hasValueBegun = false;
  isValueEmpty = true;
  value.clear();
}

void XmlReader::addToValue(std::string_view text, std::string &arguments) {
  isValueEmpty &= text.empty();
  if (isRepeated)
    return;
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
  if (!isRepeated)
    arguments += types == kStringType ? "\"" : typedValue(value, types, values);
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

Begin XmlReader::beginsParameter(std::string_view text) const {
  if (const Begin begun = beginsWith(text, kParameter); begun != Begin::Yes)
    return begun;
  const std::string_view rest = text.substr(kParameter.size());
  const size_t end = rest.find('>');
  const std::string_view name = rest.substr(0, end);
  if (!tool || !tool->parameters.is_object())
    return end == std::string_view::npos ? Begin::Maybe : Begin::Yes;
  const auto properties = tool->parameters.find("properties");
  if (properties == tool->parameters.end() || !properties->is_object() ||
      properties->empty())
    return end == std::string_view::npos ? Begin::Maybe : Begin::Yes;
  Begin found = Begin::No;
  for (const auto &[key, schema] : properties->items())
    if (end == std::string_view::npos ? key.starts_with(name) : key == name)
      found = end == std::string_view::npos ? Begin::Maybe : Begin::Yes;
  return found;
}

Begin XmlReader::followsParameter(std::string_view text, bool isLast) const {
  constexpr std::string_view ends[] = {kFunctionEnd, kCallClose};
  const Begin found = std::max(follows(text, isLast, ends),
                               beginsParameter(text.substr(spaceBefore(text))));
  return found == Begin::Maybe && isLast ? Begin::No : found;
}

/// Where a function that stands in a value ends, if `text` begins with it: at a
/// tag that ends the value behind it. A text that only quotes the tag has none.
static Begin findNested(std::string_view text, bool isLast, size_t &end) {
  constexpr size_t kMostNested = kMostHeld / 2;
  const std::string_view all = text.substr(0, kMostNested);
  int64_t depth = 0;
  for (size_t at = 0; (at = all.find('<', at)) != std::string_view::npos;
       ++at) {
    const std::string_view rest = all.substr(at);
    depth += rest.starts_with(kFunction) ? 1 : 0;
    depth -= rest.starts_with(kFunctionEnd) ? 1 : 0;
    if (depth < 0)
      return Begin::No;
    if (depth == 0 && rest.starts_with(kParameterEnd)) {
      end = at;
      return Begin::Yes;
    }
  }
  return isLast || all.size() == kMostNested ? Begin::No : Begin::Maybe;
}

Begin XmlReader::endsAt(std::string_view text, size_t at, bool isLast,
                        size_t &next) {
  constexpr std::string_view afterFunction[] = {kCallClose};
  constexpr std::string_view starts[] = {kParameterEnd, kFunctionEnd, kFunction,
                                         kParameter};
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(kParameterEnd))
    return followsParameter(rest.substr(kParameterEnd.size()), isLast);
  if (rest.starts_with(kFunctionEnd))
    return follows(rest.substr(kFunctionEnd.size()), isLast, afterFunction);
  if (rest.starts_with(kFunction)) {
    size_t end = 0;
    const Begin nested = findNested(rest, isLast, end);
    next = nested == Begin::Yes ? at + end : next;
    return nested == Begin::Yes ? Begin::No : nested;
  }
  if (rest.starts_with(kParameter)) {
    // The tag that ends the value is missing.
    const bool isLine = at > 0 ? text[at - 1] == '\n' : isValueEmpty;
    const std::string_view name =
        rest.substr(kParameter.size(), rest.find('>') - kParameter.size());
    if (!isLine || !tool || std::ranges::count(given, name))
      return Begin::No;
    const Begin begins = beginsParameter(rest);
    if (begins == Begin::Yes)
      return hasProperty(tool->parameters, std::string(name)) ? begins
                                                              : Begin::No;
    return begins == Begin::Maybe && isLast ? Begin::No : begins;
  }
  if (isLast)
    return Begin::No;
  Begin found = Begin::No;
  for (const std::string_view start : starts)
    found = std::max(found, beginsWith(rest, start));
  return std::min(found, Begin::Maybe);
}

size_t XmlReader::readValue(std::string_view text, bool isLast,
                            std::string &arguments) {
  if (!hasValueBegun && !text.empty()) {
    hasValueBegun = true;
    if (text.front() == '\n')
      return 1;
  }
  // The first tag that ends the value, or that may.
  size_t tag = text.find('<');
  Begin ends = Begin::No;
  while (tag != std::string_view::npos) {
    size_t next = tag + 1;
    ends = endsAt(text, tag, isLast, next);
    if (ends != Begin::No)
      break;
    tag = text.find('<', next);
  }
  const size_t size = std::min(tag, text.size());
  // The newline before a tag belongs to it.
  const bool hasNewline =
      size > 0 && text[size - 1] == '\n' && (!isLast || ends == Begin::Yes);
  addToValue(text.substr(0, size - (hasNewline ? 1 : 0)), arguments);
  if (ends != Begin::Yes)
    return size - (hasNewline ? 1 : 0);
  endValue(arguments);
  return size + (text.substr(size).starts_with(kParameterEnd)
                     ? kParameterEnd.size()
                     : 0);
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
