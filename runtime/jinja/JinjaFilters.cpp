//===- JinjaFilters.cpp - Filters -----------------------------------------===//

#include "jinja/JinjaBuiltins.h"
#include "jinja/JinjaInterpreter.h"
#include "text/Unicode.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

using namespace qwen;
using namespace qwen::jinja;

using Filter = Value (*)(Interpreter &, const Value &, const ArgumentReader &);

/// str() of a value that may be large.
static MarkedText textOf(Interpreter &interpreter, const Value &value) {
  interpreter.charge(value.weight());
  return toText(value);
}

//===----------------------------------------------------------------------===//
// Filters of lists
//===----------------------------------------------------------------------===//

/// The attribute of `value` that a filter's `attribute` argument names: "a.b"
/// or "0".
static Value attributePath(Interpreter &interpreter, Value value,
                           const Value &path) {
  interpreter.charge(path.weight());
  if (path.integer())
    return interpreter.item(value, path);
  const std::string names = toText(path).bytes();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('.', begin), names.size());
    value = interpreter.attribute(value, names.substr(begin, end - begin));
    begin = end + 1;
  }
  return value;
}

static Value length(Interpreter &, const Value &value, const ArgumentReader &) {
  if (const MarkedText *text = value.string())
    return int64_t(countCodePoints(text->bytes()));
  if (value.isDict() || value.isList())
    return int64_t(value.size());
  if (value.isUndefined())
    return int64_t(0);
  throw Failure{"a " + std::string(value.typeName()) + " has no length"};
}

static Value join(Interpreter &interpreter, const Value &value,
                  const ArgumentReader &arguments) {
  const Value separator = arguments.optional(0, "d", "");
  const Value path = arguments.optional(1, "attribute", Value());
  MarkedText text;
  bool isFirst = true;
  for (const Value &item : interpreter.iterate(value)) {
    if (!isFirst)
      text.append(toText(separator));
    isFirst = false;
    const Value part =
        path.isNone() ? item : attributePath(interpreter, item, path);
    interpreter.charge(part.weight() + separator.weight());
    text.append(toText(part));
  }
  return interpreter.makeString(std::move(text));
}

/// The key of sort, unique, min and max, which ignore case by default.
static Value sortKey(Interpreter &interpreter, const Value &value,
                     bool isCaseSensitive, const Value &path) {
  Value key = path.isNone() ? value : attributePath(interpreter, value, path);
  if (!isCaseSensitive && key.isString()) {
    interpreter.charge(key.size());
    key = interpreter.makeString(key.string()->transform(toLower));
  }
  return key;
}

static Value sort(Interpreter &interpreter, const Value &value,
                  const ArgumentReader &arguments) {
  const bool isReversed = arguments.optional(0, "reverse", false).isTrue();
  const bool isCaseSensitive =
      arguments.optional(1, "case_sensitive", false).isTrue();
  const Value path = arguments.optional(2, "attribute", Value());
  const auto isBefore = [&](const Value &a, const Value &b) {
    interpreter.charge(a.weight() + b.weight());
    return isReversed ? less(b, a) : less(a, b);
  };
  // A stable sort. std::sort reads outside of its list if a key is NaN.
  std::multimap<Value, Value, decltype(isBefore)> items(isBefore);
  for (const Value &item : interpreter.iterate(value))
    items.emplace(sortKey(interpreter, item, isCaseSensitive, path), item);
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const auto &[key, item] : items)
    sorted.push_back(item);
  return interpreter.makeList(std::move(sorted));
}

static Value dictSort(Interpreter &interpreter, const Value &value,
                      const ArgumentReader &) {
  if (!value.isDict())
    throw Failure{"dictsort needs a dict and not a " +
                  std::string(value.typeName())};
  interpreter.charge(2 * value.weight());
  auto items = value.dict()->items;
  std::vector<std::pair<std::string, size_t>> keys;
  keys.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i)
    keys.emplace_back(toLower(items[i].first.bytes()), i);
  std::ranges::sort(keys);
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const auto &[key, index] : keys)
    sorted.push_back(interpreter.makeList(
        {interpreter.makeString(items[index].first), items[index].second},
        /*isTuple=*/true));
  return interpreter.makeList(std::move(sorted));
}

static Value unique(Interpreter &interpreter, const Value &value,
                    const ArgumentReader &arguments) {
  const bool isCaseSensitive =
      arguments.optional(0, "case_sensitive", false).isTrue();
  const Value path = arguments.optional(1, "attribute", Value());
  std::vector<Value> kept, keys;
  for (const Value &item : interpreter.iterate(value)) {
    const Value key = sortKey(interpreter, item, isCaseSensitive, path);
    interpreter.charge(keys.size() * key.weight());
    if (std::ranges::any_of(
            keys, [&](const Value &other) { return equal(key, other); }))
      continue;
    keys.push_back(key);
    kept.push_back(item);
  }
  return interpreter.makeList(std::move(kept));
}

/// min and max.
template <bool IsMax>
static Value extreme(Interpreter &interpreter, const Value &value,
                     const ArgumentReader &arguments) {
  const bool isCaseSensitive =
      arguments.optional(0, "case_sensitive", false).isTrue();
  const Value path = arguments.optional(1, "attribute", Value());
  Value best = Value::undefined("an empty list has no least or greatest item");
  Value bestKey;
  for (const Value &item : interpreter.iterate(value)) {
    const Value key = sortKey(interpreter, item, isCaseSensitive, path);
    interpreter.charge(bestKey.weight() + key.weight());
    if (!best.isUndefined() &&
        !(IsMax ? less(bestKey, key) : less(key, bestKey)))
      continue;
    best = item;
    bestKey = key;
  }
  return best;
}

/// select, reject and their attribute forms: the items for which the named
/// test, or without one their truth, is `Wanted`.
template <bool Wanted, bool OfAttribute>
static Value select(Interpreter &interpreter, const Value &value,
                    const ArgumentReader &arguments) {
  const std::vector<Value> &all = arguments.all().positional;
  size_t at = 0;
  const Value path = OfAttribute ? arguments.need(at++, "attribute") : Value();
  Arguments rest;
  std::string test;
  if (at < all.size()) {
    test = toText(all[at++]).bytes();
    rest.positional.assign(all.begin() + ptrdiff_t(at), all.end());
  }
  std::vector<Value> kept;
  for (const Value &item : interpreter.iterate(value)) {
    const Value subject =
        OfAttribute ? attributePath(interpreter, item, path) : item;
    const bool holds = test.empty()
                           ? subject.isTrue()
                           : applyTest(interpreter, test, subject, rest);
    if (holds == Wanted)
      kept.push_back(item);
  }
  return interpreter.makeList(std::move(kept));
}

static Value map(Interpreter &interpreter, const Value &value,
                 const ArgumentReader &arguments) {
  const Value path = arguments.optional(SIZE_MAX, "attribute", Value());
  const Value byDefault = arguments.optional(
      SIZE_MAX, "default", Value::undefined("the attribute is undefined"));
  std::vector<Value> result;
  for (const Value &item : interpreter.iterate(value)) {
    if (path.isNone()) {
      Arguments rest = arguments.all();
      if (rest.positional.empty())
        throw Failure{"map needs the name of a filter or an attribute"};
      const std::string name = toText(rest.positional[0]).bytes();
      rest.positional.erase(rest.positional.begin());
      result.push_back(applyFilter(interpreter, name, item, rest));
      continue;
    }
    const Value found = attributePath(interpreter, item, path);
    result.push_back(found.isUndefined() ? byDefault : found);
  }
  return interpreter.makeList(std::move(result));
}

static Value sum(Interpreter &interpreter, const Value &value,
                 const ArgumentReader &arguments) {
  const Value path = arguments.optional(0, "attribute", Value());
  Value total = arguments.optional(1, "start", int64_t(0));
  for (const Value &item : interpreter.iterate(value)) {
    const Value part =
        path.isNone() ? item : attributePath(interpreter, item, path);
    if (!part.isNumber() || !total.isNumber())
      throw Failure{"sum needs numbers and not a " +
                    std::string(part.typeName())};
    int64_t next = 0;
    const std::optional<int64_t> left = total.integer(), right = part.integer();
    if (!left || !right)
      total = total.number() + part.number();
    else if (__builtin_add_overflow(*left, *right, &next))
      throw Failure{"a number is too large"};
    else
      total = next;
  }
  return total;
}

static Value reverse(Interpreter &interpreter, const Value &value,
                     const ArgumentReader &) {
  std::vector<Value> items = interpreter.iterate(value);
  std::reverse(items.begin(), items.end());
  if (!value.isString())
    return interpreter.makeList(std::move(items));
  MarkedText text;
  for (const Value &item : items)
    text.append(*item.string());
  return interpreter.makeString(std::move(text));
}

template <bool IsLast>
static Value endItem(Interpreter &interpreter, const Value &value,
                     const ArgumentReader &) {
  const std::vector<Value> items = interpreter.iterate(value);
  if (items.empty())
    return Value::undefined("an empty list has no first or last item");
  return IsLast ? items.back() : items.front();
}

static Value dictItems(Interpreter &interpreter, const Value &value,
                       const ArgumentReader &) {
  if (value.isUndefined())
    return interpreter.makeList({});
  if (!value.isDict())
    throw Failure{"items needs a dict and not a " +
                  std::string(value.typeName())};
  return callMethod(interpreter, value, "items", {}).value_or(Value());
}

//===----------------------------------------------------------------------===//
// Filters of numbers and text
//===----------------------------------------------------------------------===//

static Value toInteger(Interpreter &, const Value &value,
                       const ArgumentReader &arguments) {
  Value byDefault = arguments.optional(0, "default", int64_t(0));
  if (value.integer())
    return *value.integer();
  double number = value.number();
  if (const MarkedText *text = value.string()) {
    const std::string_view digits = strip(text->bytes(), nullptr, true, true);
    int64_t whole = 0;
    const std::from_chars_result end =
        std::from_chars(digits.data(), digits.data() + digits.size(), whole);
    if (end.ec == std::errc() && end.ptr == digits.data() + digits.size())
      return whole;
    const std::from_chars_result realEnd =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (realEnd.ec != std::errc() ||
        realEnd.ptr != digits.data() + digits.size())
      return byDefault;
  } else if (!value.isFloat()) {
    return byDefault;
  }
  if (!(std::fabs(number) < 9e18))
    return byDefault;
  return int64_t(number);
}

static Value toFloat(Interpreter &, const Value &value,
                     const ArgumentReader &arguments) {
  if (value.isNumber())
    return value.number();
  if (const MarkedText *text = value.string()) {
    const std::string_view digits = strip(text->bytes(), nullptr, true, true);
    double number = 0;
    const std::from_chars_result end =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (end.ec == std::errc() && end.ptr == digits.data() + digits.size())
      return number;
  }
  return arguments.optional(0, "default", 0.0);
}

static Value absolute(Interpreter &, const Value &value,
                      const ArgumentReader &) {
  if (value.integer() && *value.integer() > INT64_MIN)
    return std::abs(*value.integer());
  if (value.isFloat())
    return std::fabs(value.number());
  throw Failure{"abs needs a number and not a " +
                std::string(value.typeName())};
}

static Value roundTo(Interpreter &, const Value &value,
                     const ArgumentReader &arguments) {
  if (!value.isNumber())
    throw Failure{"round needs a number and not a " +
                  std::string(value.typeName())};
  const int64_t digits = arguments.integer(0, "precision", 0);
  if (digits < 0 || digits > 15)
    throw Failure{"round to " + std::to_string(digits) +
                  " digits is not supported"};
  const std::string method =
      toText(arguments.optional(1, "method", "common")).bytes();
  if (value.integer() && method == "common")
    return *value.integer();
  const double scale = std::pow(10.0, double(digits));
  const double scaled = value.number() * scale;
  return (method == "ceil"    ? std::ceil(scaled)
          : method == "floor" ? std::floor(scaled)
                              : std::nearbyint(scaled)) /
         scale;
}

static MarkedText spaces(int64_t count) {
  return {std::string(size_t(std::max<int64_t>(count, 0)), ' '),
          Origin::Template};
}

static Value toJsonFilter(Interpreter &interpreter, const Value &value,
                          const ArgumentReader &arguments) {
  JsonStyle style;
  style.ensureAscii = arguments.optional(0, "ensure_ascii", false).isTrue();
  const Value indent = arguments.optional(1, "indent", Value());
  if (indent.isString())
    style.indent = *indent.string();
  else if (indent.integer())
    style.indent = spaces(std::min<int64_t>(*indent.integer(), 32));
  if (style.indent)
    style.itemSeparator = {",", Origin::Template};
  const Value separators = arguments.optional(2, "separators", Value());
  if (const ListData *pair = separators.list();
      pair && pair->items.size() == 2) {
    style.itemSeparator = toText(pair->items[0]);
    style.keySeparator = toText(pair->items[1]);
  }
  style.sortKeys = arguments.optional(3, "sort_keys", false).isTrue();
  // The text between the parts counts too.
  const uint64_t between =
      style.itemSeparator.bytes().size() + style.keySeparator.bytes().size() +
      (style.indent ? style.indent->bytes().size() * value.depth() : 0);
  interpreter.charge(value.weight() * (1 + between));
  return interpreter.makeString(toJson(value, style));
}

static Value indent(Interpreter &interpreter, const Value &value,
                    const ArgumentReader &arguments) {
  const Value width = arguments.optional(0, "width", int64_t(4));
  const bool first = arguments.optional(1, "first", false).isTrue();
  const bool blank = arguments.optional(2, "blank", false).isTrue();
  const MarkedText margin =
      width.isString()
          ? *width.string()
          : spaces(std::min<int64_t>(width.integer().value_or(4), 1000));
  const MarkedText source = textOf(interpreter, value);
  const std::string_view bytes = source.bytes();
  const auto lines = uint64_t(std::ranges::count(bytes, '\n'));
  interpreter.charge(bytes.size() + (lines + 1) * margin.bytes().size());
  MarkedText text;
  if (first)
    text.append(margin);
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size() - 1) + 1;
    text.append(source, bytes.substr(begin, end - begin));
    if (bytes[end - 1] == '\n' &&
        (blank || (end < bytes.size() && bytes[end] != '\n')))
      text.append(margin);
    begin = end;
  }
  return interpreter.makeString(std::move(text));
}

static std::string escapeHtml(std::string_view source) {
  std::string text;
  for (char c : source) {
    switch (c) {
    case '&':
      text += "&amp;";
      break;
    case '<':
      text += "&lt;";
      break;
    case '>':
      text += "&gt;";
      break;
    case '"':
      text += "&#34;";
      break;
    case '\'':
      text += "&#39;";
      break;
    default:
      text += c;
    }
  }
  return text;
}

/// Unlike the method `title`, begins words only after these characters.
static Value title(Interpreter &interpreter, const Value &value,
                   const ArgumentReader &) {
  bool isStart = true;
  const auto change = [&](std::string_view source) {
    std::string text;
    while (!source.empty()) {
      const std::string_view character =
          source.substr(0, decodeUtf8(source).length);
      text += isStart ? toUpper(character) : toLower(character);
      isStart =
          std::string_view("-({[<").find(character) != std::string::npos ||
          strip(character, nullptr, true, false).empty();
      source.remove_prefix(character.size());
    }
    return text;
  };
  return interpreter.makeString(textOf(interpreter, value).transform(change));
}

static Value defaultValue(Interpreter &, const Value &value,
                          const ArgumentReader &arguments) {
  const bool whenFalse = arguments.optional(1, "boolean", false).isTrue();
  if (value.isUndefined() || (whenFalse && !value.isTrue()))
    return arguments.optional(0, "default_value", "");
  return value;
}

/// A filter that calls the string method `method`.
static Value viaMethod(Interpreter &interpreter, const Value &value,
                       const ArgumentReader &arguments, const char *method) {
  const Value text = value.isString()
                         ? value
                         : interpreter.makeString(textOf(interpreter, value));
  return callMethod(interpreter, text, method, arguments.all())
      .value_or(Value());
}

static const std::map<std::string_view, Filter> &filters() {
  using In = Interpreter;
  using Args = ArgumentReader;
  static const Filter escape = [](In &in, const Value &v, const Args &) {
    return in.makeString(textOf(in, v).transform(escapeHtml));
  };
  static const std::map<std::string_view, Filter> table = {
      {"abs", absolute},
      {"attr",
       [](In &in, const Value &v, const Args &a) {
         return in.attribute(v, toText(a.need(0, "name")).bytes());
       }},
      {"capitalize",
       [](In &in, const Value &v, const Args &a) {
         return viaMethod(in, v, a, "capitalize");
       }},
      {"count", length},
      {"d", defaultValue},
      {"default", defaultValue},
      {"dictsort", dictSort},
      {"e", escape},
      {"escape", escape},
      {"first", endItem<false>},
      {"float", toFloat},
      {"indent", indent},
      {"int", toInteger},
      {"items", dictItems},
      {"join", join},
      {"last", endItem<true>},
      {"length", length},
      {"list", [](In &in, const Value &v,
                  const Args &) { return in.makeList(in.iterate(v)); }},
      {"lower", [](In &in, const Value &v,
                   const Args &a) { return viaMethod(in, v, a, "lower"); }},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"replace", [](In &in, const Value &v,
                     const Args &a) { return viaMethod(in, v, a, "replace"); }},
      {"reverse", reverse},
      {"round", roundTo},
      {"safe", [](In &, const Value &v, const Args &) { return v; }},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"sort", sort},
      {"string", [](In &in, const Value &v,
                    const Args &) { return in.makeString(textOf(in, v)); }},
      {"sum", sum},
      {"title", title},
      {"tojson", toJsonFilter},
      {"trim", [](In &in, const Value &v,
                  const Args &a) { return viaMethod(in, v, a, "strip"); }},
      {"unique", unique},
      {"upper", [](In &in, const Value &v,
                   const Args &a) { return viaMethod(in, v, a, "upper"); }},
  };
  return table;
}

Value jinja::applyFilter(Interpreter &interpreter, std::string_view name,
                         const Value &input, const Arguments &arguments) {
  const auto found = filters().find(name);
  if (found == filters().end())
    throw Failure{"the filter '" + std::string(name) + "' is not supported"};
  const ArgumentReader reader(name, arguments);
  // Filters of lists charge for the items that they read.
  interpreter.charge(kStep + (input.isString() ? input.size() : 0) +
                     reader.weight());
  return found->second(interpreter, input, reader);
}
