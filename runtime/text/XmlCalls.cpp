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

#include <algorithm>
#include <utility>

using namespace qwen;

using Begin = CallReader::Begin;

static constexpr std::string_view kFunction = "<function=",
                                  kFunctionEnd = "</function>",
                                  kParameter = "<parameter=",
                                  kParameterEnd = "</parameter>";

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
  constexpr size_t kMostName = 256;
  if (const Begin begun = beginsWith(text, kFunction); begun != Begin::Yes)
    return begun;
  const std::string_view rest = text.substr(kFunction.size());
  const size_t end = rest.find_first_of("> \t\r\n<\"");
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
