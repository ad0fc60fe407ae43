//===- JinjaMethods.cpp - Methods and functions ---------------------------===//

#include "jinja/JinjaBuiltins.h"
#include "jinja/JinjaInterpreter.h"
#include "text/Unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <ctime>
#include <map>

using namespace qwen;
using namespace qwen::jinja;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

const Value *ArgumentReader::find(size_t index, std::string_view name) const {
  if (index < arguments.positional.size())
    return &arguments.positional[index];
  for (const auto &[given, value] : arguments.named)
    if (given == name)
      return &value;
  return nullptr;
}

const Value &ArgumentReader::need(size_t index, std::string_view name) const {
  if (const Value *value = find(index, name))
    return *value;
  throw Failure{"'" + callee + "' needs the argument '" + std::string(name) +
                "'"};
}

Value ArgumentReader::optional(size_t index, std::string_view name,
                               const Value &byDefault) const {
  const Value *value = find(index, name);
  return value ? *value : byDefault;
}

int64_t ArgumentReader::integer(size_t index, std::string_view name,
                                int64_t byDefault) const {
  const Value *value = find(index, name);
  if (!value || value->isNone())
    return byDefault;
  if (!value->integer())
    throw Failure{"'" + callee + "' needs an int as '" + std::string(name) +
                  "' and not a " + std::string(value->typeName())};
  return *value->integer();
}

const MarkedText &ArgumentReader::text(size_t index,
                                       std::string_view name) const {
  const Value &value = need(index, name);
  if (!value.isString())
    throw Failure{"'" + callee + "' needs a string as '" + std::string(name) +
                  "' and not a " + std::string(value.typeName())};
  return *value.string();
}

uint64_t ArgumentReader::weight() const {
  uint64_t sum = 0;
  for (const Value &value : arguments.positional)
    sum += value.weight();
  for (const auto &[name, value] : arguments.named)
    sum += value.weight();
  return sum;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

template <bool FromEnd>
size_t TextSearch<FromEnd>::extend(size_t matched, char next) const {
  while (matched > 0 && at(wanted, matched) != next)
    matched = shorter[matched - 1];
  return matched + (at(wanted, matched) == next);
}

template <bool FromEnd>
TextSearch<FromEnd>::TextSearch(std::string_view wantedText)
    : wanted(wantedText) {
  shorter.reserve(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    shorter.push_back(i ? uint32_t(extend(shorter[i - 1], at(wanted, i))) : 0);
}

template <bool FromEnd>
size_t TextSearch<FromEnd>::find(std::string_view text) const {
  if (wanted.empty())
    return FromEnd ? text.size() : 0;
  size_t matched = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    matched = extend(matched, at(text, i));
    if (matched == wanted.size())
      return FromEnd ? text.size() - 1 - i : i + 1 - matched;
  }
  return text.npos;
}

template class jinja::TextSearch<false>;
template class jinja::TextSearch<true>;

/// Python's str.isspace of one character.
static bool isSpace(char32_t c) {
  const CharClass kind = charClass(c);
  return kind == CharClass::Space || kind == CharClass::Newline ||
         (c >= 0x1c && c <= 0x1f);
}

std::string_view jinja::strip(std::string_view text, const std::string *chars,
                              bool atBegin, bool atEnd) {
  const auto isStripped = [&](std::string_view character) {
    return chars ? chars->find(character) != chars->npos
                 : isSpace(decodeUtf8(character).codePoint);
  };
  while (atBegin && !text.empty()) {
    const size_t size = decodeUtf8(text).length;
    if (!isStripped(text.substr(0, size)))
      break;
    text.remove_prefix(size);
  }
  while (atEnd && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && continuesCharacter(text[begin]))
      --begin;
    if (!isStripped(text.substr(begin)))
      break;
    text = text.substr(0, begin);
  }
  return text;
}

/// Applies `change` to each character.
template <typename Change>
static std::string changeCase(std::string_view text, Change change) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decodeUtf8(text.substr(i));
    appendUtf8(result, char32_t(change(utf8proc_int32_t(c.codePoint))));
    i += c.length;
  }
  return result;
}

std::string jinja::toLower(std::string_view text) {
  return changeCase(text, utf8proc_tolower);
}

std::string jinja::toUpper(std::string_view text) {
  return changeCase(text, utf8proc_toupper);
}

//===----------------------------------------------------------------------===//
// Methods of strings
//===----------------------------------------------------------------------===//

using Method = Value (*)(Interpreter &, const MarkedText &,
                         const ArgumentReader &);

template <bool AtBegin, bool AtEnd>
static Value stripMethod(Interpreter &interpreter, const MarkedText &text,
                         const ArgumentReader &arguments) {
  const Value chars = arguments.optional(0, "chars", Value());
  if (!chars.isNone() && !chars.isString())
    throw Failure{"strip needs a string and not a " +
                  std::string(chars.typeName())};
  interpreter.charge(text.bytes().size() * chars.size() / 16);
  return interpreter.makeString(text.part(
      strip(text.bytes(), chars.isNone() ? nullptr : &chars.string()->bytes(),
            AtBegin, AtEnd)));
}

/// split and rsplit.
template <bool FromEnd>
static Value splitMethod(Interpreter &interpreter, const MarkedText &source,
                         const ArgumentReader &arguments) {
  const Value separator = arguments.optional(0, "sep", Value());
  const int64_t given = arguments.integer(1, "maxsplit", -1);
  auto splits = given < 0 ? SIZE_MAX : size_t(given);
  std::vector<Value> parts;
  std::string_view text = source.bytes();
  const auto add = [&](std::string_view part) {
    parts.push_back(interpreter.makeString(source.part(part)));
  };
  if (separator.isNone()) {
    // Runs of white space count as one separator. The rest keeps its other end.
    text = strip(text, nullptr, !FromEnd, FromEnd);
    while (!text.empty()) {
      size_t cut = FromEnd ? text.size() : 0;
      const auto isCut = [&](size_t at) {
        return !continuesCharacter(text[at]) &&
               isSpace(decodeUtf8(text.substr(at)).codePoint);
      };
      if (splits == 0) {
        cut = FromEnd ? 0 : text.size();
      } else if (FromEnd) {
        while (cut > 0 && !isCut(cut - 1))
          --cut;
      } else {
        while (cut < text.size() && !isCut(cut))
          ++cut;
      }
      add(FromEnd ? text.substr(cut) : text.substr(0, cut));
      text = FromEnd ? text.substr(0, cut) : text.substr(cut);
      splits -= splits > 0;
      text = strip(text, nullptr, !FromEnd, FromEnd);
    }
  } else {
    const std::string &mark = arguments.text(0, "sep").bytes();
    if (mark.empty())
      throw Failure{"split by an empty string"};
    const TextSearch<FromEnd> search(mark);
    for (; splits > 0; --splits) {
      const size_t at = search.find(text);
      if (at == text.npos)
        break;
      add(FromEnd ? text.substr(at + mark.size()) : text.substr(0, at));
      text = FromEnd ? text.substr(0, at) : text.substr(at + mark.size());
    }
    add(text);
  }
  if (FromEnd)
    std::reverse(parts.begin(), parts.end());
  return interpreter.makeList(std::move(parts));
}

static Value splitLines(Interpreter &interpreter, const MarkedText &source,
                        const ArgumentReader &arguments) {
  const std::string_view text = source.bytes();
  const bool keepsEnds = arguments.optional(0, "keepends", false).isTrue();
  std::vector<Value> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    size_t next = std::min(end + 1, text.size());
    if (end + 1 < text.size() && text[end] == '\r' && text[end + 1] == '\n')
      ++next;
    lines.push_back(interpreter.makeString(
        source.part(text.substr(begin, (keepsEnds ? next : end) - begin))));
    begin = next;
  }
  return interpreter.makeList(std::move(lines));
}

/// startswith and endswith, of one string or any of a tuple.
template <bool AtEnd>
static Value hasAffix(Interpreter &, const MarkedText &text,
                      const ArgumentReader &arguments) {
  const auto has = [&](const MarkedText &part) {
    return AtEnd ? text.bytes().ends_with(part.bytes())
                 : text.bytes().starts_with(part.bytes());
  };
  const Value &wanted = arguments.need(0, "prefix");
  if (const ListData *any = wanted.list())
    return std::any_of(any->items.begin(), any->items.end(),
                       [&](const Value &part) {
                         return part.isString() && has(*part.string());
                       });
  return has(arguments.text(0, "prefix"));
}

template <bool AtEnd>
static Value removeAffix(Interpreter &interpreter, const MarkedText &source,
                         const ArgumentReader &arguments) {
  const std::string_view affix = arguments.text(0, "prefix").bytes();
  std::string_view text = source.bytes();
  if (AtEnd && text.ends_with(affix))
    text.remove_suffix(affix.size());
  else if (!AtEnd && text.starts_with(affix))
    text.remove_prefix(affix.size());
  return interpreter.makeString(source.part(text));
}

static Value replaceMethod(Interpreter &interpreter, const MarkedText &text,
                           const ArgumentReader &arguments) {
  const std::string &from = arguments.text(0, "old").bytes();
  const MarkedText &to = arguments.text(1, "new");
  const int64_t given = arguments.integer(2, "count", -1);
  auto left = given < 0 ? UINT64_MAX : uint64_t(given);
  const TextSearch<false> search(from);
  MarkedText result;
  std::string_view rest = text.bytes();
  for (; left > 0; --left) {
    // An empty string occurs before each character and at the end.
    const size_t found = search.find(rest);
    if (found == rest.npos)
      break;
    interpreter.charge(to.bytes().size());
    result.append(text, rest.substr(0, found));
    result.append(to);
    rest.remove_prefix(found + from.size());
    if (!from.empty())
      continue;
    if (rest.empty())
      break;
    const size_t size = decodeUtf8(rest).length;
    result.append(text, rest.substr(0, size));
    rest.remove_prefix(size);
  }
  result.append(text, rest);
  return interpreter.makeString(std::move(result));
}

template <bool FromEnd>
static Value findMethod(Interpreter &, const MarkedText &source,
                        const ArgumentReader &arguments) {
  const std::string_view text = source.bytes();
  const size_t at =
      TextSearch<FromEnd>(arguments.text(0, "sub").bytes()).find(text);
  if (at == text.npos)
    return int64_t(-1);
  return int64_t(countCodePoints(text.substr(0, at)));
}

static Value countMethod(Interpreter &, const MarkedText &text,
                         const ArgumentReader &arguments) {
  const std::string &part = arguments.text(0, "sub").bytes();
  std::string_view rest = text.bytes();
  if (part.empty())
    return int64_t(countCodePoints(rest) + 1);
  const TextSearch<false> search(part);
  int64_t count = 0;
  for (size_t at = search.find(rest); at != rest.npos; at = search.find(rest)) {
    rest.remove_prefix(at + part.size());
    ++count;
  }
  return count;
}

/// isdigit, isalpha and isspace.
template <CharClass Wanted>
static Value consistsOf(Interpreter &, const MarkedText &source,
                        const ArgumentReader &) {
  const std::string_view text = source.bytes();
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decodeUtf8(text.substr(i));
    if (Wanted == CharClass::Space ? !isSpace(c.codePoint)
                                   : charClass(c.codePoint) != Wanted)
      return false;
    i += c.length;
  }
  return !text.empty();
}

/// title, which begins a word after each character that is no letter, and
/// capitalize, which has one word.
template <bool SeveralWords>
static Value titleMethod(Interpreter &interpreter, const MarkedText &text,
                         const ArgumentReader &) {
  bool isStart = true;
  const auto change = [&](utf8proc_int32_t c) {
    const bool wasStart = std::exchange(
        isStart, SeveralWords && charClass(char32_t(c)) != CharClass::Letter);
    return wasStart ? utf8proc_totitle(c) : utf8proc_tolower(c);
  };
  return interpreter.makeString(text.transform(
      [&](std::string_view run) { return changeCase(run, change); }));
}

static const std::map<std::string_view, Method> &stringMethods() {
  using In = Interpreter;
  using Args = ArgumentReader;
  static const std::map<std::string_view, Method> table = {
      {"strip", stripMethod<true, true>},
      {"lstrip", stripMethod<true, false>},
      {"rstrip", stripMethod<false, true>},
      {"split", splitMethod<false>},
      {"rsplit", splitMethod<true>},
      {"splitlines", splitLines},
      {"startswith", hasAffix<false>},
      {"endswith", hasAffix<true>},
      {"removeprefix", removeAffix<false>},
      {"removesuffix", removeAffix<true>},
      {"replace", replaceMethod},
      {"find", findMethod<false>},
      {"rfind", findMethod<true>},
      {"count", countMethod},
      {"isdigit", consistsOf<CharClass::Number>},
      {"isalpha", consistsOf<CharClass::Letter>},
      {"isspace", consistsOf<CharClass::Space>},
      {"lower",
       [](In &in, const MarkedText &text, const Args &) {
         return in.makeString(text.transform(toLower));
       }},
      {"upper",
       [](In &in, const MarkedText &text, const Args &) {
         return in.makeString(text.transform(toUpper));
       }},
      {"title", titleMethod<true>},
      {"capitalize", titleMethod<false>},
      {"join",
       [](In &in, const MarkedText &text, const Args &arguments) {
         MarkedText joined;
         bool isFirst = true;
         for (const Value &part : in.iterate(arguments.need(0, "iterable"))) {
           if (!part.isString())
             throw Failure{"join needs strings and not a " +
                           std::string(part.typeName())};
           in.charge(text.bytes().size() + part.weight());
           if (!isFirst)
             joined.append(text);
           isFirst = false;
           joined.append(*part.string());
         }
         return in.makeString(std::move(joined));
       }},
  };
  return table;
}

//===----------------------------------------------------------------------===//
// Methods of dicts and lists
//===----------------------------------------------------------------------===//

static std::optional<Value> dictMethod(Interpreter &interpreter,
                                       const DictData &dict,
                                       std::string_view name,
                                       const ArgumentReader &arguments) {
  if (name == "get") {
    const Value &key = arguments.need(0, "key");
    const Value *found = key.isString()
                             ? interpreter.find(dict, key.string()->bytes())
                             : nullptr;
    return found ? *found : arguments.optional(1, "default", Value());
  }
  if (name != "items" && name != "keys" && name != "values")
    return std::nullopt;
  std::vector<Value> result;
  for (const auto &[key, value] : dict.items) {
    if (name == "values")
      result.push_back(value);
    else if (name == "keys")
      result.push_back(interpreter.makeString(key));
    else
      result.push_back(interpreter.makeList(
          {interpreter.makeString(key), value}, /*isTuple=*/true));
  }
  return interpreter.makeList(std::move(result));
}

static std::optional<Value> listMethod(Interpreter &interpreter,
                                       const ListData &list,
                                       std::string_view name,
                                       const ArgumentReader &arguments) {
  if (name == "count" || name == "index") {
    interpreter.charge(list.weight);
    const Value &wanted = arguments.need(0, "value");
    int64_t count = 0;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (!equal(list.items[i], wanted))
        continue;
      if (name == "index")
        return int64_t(i);
      ++count;
    }
    if (name == "index")
      throw Failure{"the list has no such item"};
    return count;
  }
  for (const char *change : {"append", "extend", "insert", "pop", "remove",
                             "sort", "reverse", "clear"})
    if (name == change)
      throw Failure{"lists cannot be changed by '" + std::string(name) + "'"};
  return std::nullopt;
}

std::optional<Value> jinja::callMethod(Interpreter &interpreter,
                                       const Value &object,
                                       std::string_view name,
                                       const Arguments &arguments) {
  const ArgumentReader reader(name, arguments);
  interpreter.charge(object.size() + reader.weight());
  if (const DictData *dict = object.dict())
    return dictMethod(interpreter, *dict, name, reader);
  if (const ListData *list = object.list())
    return listMethod(interpreter, *list, name, reader);
  if (!object.isString())
    return std::nullopt;
  const auto found = stringMethods().find(name);
  if (found == stringMethods().end())
    throw Failure{"the method '" + std::string(name) +
                  "' of strings is not supported"};
  return found->second(interpreter, *object.string(), reader);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

static Value range(Interpreter &interpreter, const ArgumentReader &arguments) {
  const bool hasStart = arguments.all().positional.size() > 1;
  const int64_t start = hasStart ? arguments.integer(0, "start", 0) : 0;
  const int64_t stop = arguments.integer(hasStart ? 1 : 0, "stop", 0);
  const int64_t step = arguments.integer(2, "step", 1);
  if (step == 0)
    throw Failure{"the step of range is 0"};
  // Hugging Face's sandbox has the same limit.
  constexpr size_t kMaxRange = 100'000;
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == kMaxRange)
      throw Failure{"a range of more than " + std::to_string(kMaxRange) +
                    " numbers"};
    items.push_back(i);
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  return interpreter.makeList(std::move(items));
}

static Value timeText(Interpreter &interpreter,
                      const ArgumentReader &arguments) {
  const MarkedText &marked = arguments.text(0, "format");
  const std::string &format = marked.bytes();
  interpreter.charge(16 * (1 + format.size()));
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::string text(256 + format.size(), '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return interpreter.makeString(
      {std::move(text),
       marked.isWritten(0, format.size()) ? Origin::Template : Origin::Input});
}

std::optional<Value> jinja::callFunction(Interpreter &interpreter,
                                         std::string_view name,
                                         const Arguments &arguments) {
  const ArgumentReader reader(name, arguments);
  interpreter.charge(reader.weight());
  if (name == "raise_exception")
    throw Failure{"the template says: " +
                  toText(reader.need(0, "message")).bytes()};
  if (name == "namespace")
    return Value(makeNamespace(interpreter, arguments));
  if (name == "range")
    return range(interpreter, reader);
  if (name == "strftime_now")
    return timeText(interpreter, reader);
  if (name == "dict") {
    DictItems items;
    for (const Value &value : arguments.positional) {
      if (!value.isDict())
        throw Failure{"dict() takes dicts and named values"};
      for (const auto &[key, member] : value.dict()->items)
        interpreter.setItem(items, key, member);
    }
    for (const auto &[key, member] : arguments.named)
      interpreter.setItem(items, {key, Origin::Template}, member);
    return interpreter.makeDict(std::move(items));
  }
  return std::nullopt;
}
