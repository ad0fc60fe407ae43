//===- JinjaValue.cpp - Values of a template ------------------------------===//

#include "jinja/JinjaValue.h"

#include "text/Unicode.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <map>

using namespace qwen;
using namespace qwen::jinja;

std::optional<Value> Object::attribute(Interpreter &, std::string_view) {
  return std::nullopt;
}

Value Object::call(Interpreter &, const Arguments &) {
  throw Failure{"a " + std::string(typeName()) + " cannot be called"};
}

//===----------------------------------------------------------------------===//
// Access
//===----------------------------------------------------------------------===//

Value Value::undefined(std::string hint) {
  Value value;
  value.data = Undefined{std::make_shared<const std::string>(std::move(hint))};
  return value;
}

Value Value::longInteger(std::string digits) {
  const double nearest = std::strtod(digits.c_str(), nullptr);
  Value value;
  value.data = LongInteger{
      nearest, std::make_shared<const std::string>(std::move(digits))};
  return value;
}

template <typename T, typename Data>
static const T *pointerIn(const Data &data) {
  const auto *found = std::get_if<std::shared_ptr<const T>>(&data);
  return found ? found->get() : nullptr;
}

const MarkedText *Value::string() const { return pointerIn<MarkedText>(data); }
const ListData *Value::list() const { return pointerIn<ListData>(data); }
const DictData *Value::dict() const { return pointerIn<DictData>(data); }

Object *Value::object() const {
  const auto *found = std::get_if<Object *>(&data);
  return found ? *found : nullptr;
}

std::optional<int64_t> Value::integer() const {
  if (const auto *value = std::get_if<int64_t>(&data))
    return *value;
  if (const auto *value = std::get_if<bool>(&data))
    return *value;
  return std::nullopt;
}

double Value::number() const {
  if (const auto *value = std::get_if<double>(&data))
    return *value;
  if (const auto *value = std::get_if<LongInteger>(&data))
    return value->nearest;
  return static_cast<double>(integer().value_or(0));
}

const std::string &Value::undefinedHint() const {
  return *std::get<Undefined>(data).hint;
}

bool Value::isTrue() const {
  if (isUndefined() || isNone())
    return false;
  if (isNumber())
    return number() != 0;
  if (const MarkedText *text = string())
    return !text->bytes().empty();
  if (const ListData *items = list())
    return !items->items.empty();
  if (const DictData *items = dict())
    return !items->items.empty();
  return true;
}

std::string_view Value::typeName() const {
  if (isUndefined())
    return "undefined";
  if (isNone())
    return "none";
  if (isBool())
    return "bool";
  if (isInt() || isLongInteger())
    return "int";
  if (isFloat())
    return "float";
  if (isString())
    return "string";
  if (const ListData *items = list())
    return items->isTuple ? "tuple" : "list";
  if (isDict())
    return "dict";
  return object()->typeName();
}

uint64_t Value::size() const {
  if (const MarkedText *text = string())
    return text->bytes().size();
  if (const ListData *items = list())
    return items->items.size();
  if (const DictData *items = dict())
    return items->items.size();
  return 0;
}

uint32_t Value::depth() const {
  if (const ListData *items = list())
    return items->depth;
  if (const DictData *items = dict())
    return items->depth;
  return 0;
}

uint64_t Value::weight() const {
  if (const MarkedText *text = string())
    return 4 + text->memory();
  if (const ListData *items = list())
    return items->weight;
  if (const DictData *items = dict())
    return items->weight;
  if (isLongInteger())
    return digits().size();
  // A float has up to 24 digits and signs.
  return isNumber() ? 24 : 8;
}

const Value *DictData::find(std::string_view key) const {
  for (const auto &[name, value] : items)
    if (name.bytes() == key)
      return &value;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

bool jinja::equal(const Value &a, const Value &b) {
  if (a.isNumber() && b.isNumber()) {
    if (a.isFloat() || b.isFloat())
      return a.number() == b.number();
    return a.integer() == b.integer();
  }
  if (a.isString() && b.isString())
    return a.string()->bytes() == b.string()->bytes();
  if (a.isList() && b.isList())
    return a.list()->isTuple == b.list()->isTuple &&
           std::equal(a.list()->items.begin(), a.list()->items.end(),
                      b.list()->items.begin(), b.list()->items.end(), equal);
  if (a.isDict() && b.isDict()) {
    if (a.dict()->items.size() != b.dict()->items.size())
      return false;
    std::map<std::string_view, const Value *> others;
    for (const auto &[key, value] : b.dict()->items)
      others.emplace(key.bytes(), &value);
    return std::ranges::all_of(a.dict()->items, [&](const auto &item) {
      const auto other = others.find(item.first.bytes());
      return other != others.end() && equal(item.second, *other->second);
    });
  }
  if (a.object() || b.object())
    return a.object() == b.object();
  return (a.isNone() && b.isNone()) || (a.isUndefined() && b.isUndefined());
}

/// Compares two values, and the items of lists in one pass. Throws Failure for
/// values without an order, except for equal items, which Python skips.
static std::partial_ordering order(const Value &a, const Value &b,
                                   bool isItem) {
  if (a.isNumber() && b.isNumber()) {
    if (a.isFloat() || b.isFloat())
      return a.number() <=> b.number();
    return a.integer() <=> b.integer();
  }
  // UTF-8 has the order of its code points.
  if (a.isString() && b.isString())
    return a.string()->bytes() <=> b.string()->bytes();
  if (a.isList() && b.isList()) {
    const std::vector<Value> &left = a.list()->items, &right = b.list()->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (const auto result = order(left[i], right[i], true); result != 0)
        return result;
    return left.size() <=> right.size();
  }
  if (isItem && equal(a, b))
    return std::partial_ordering::equivalent;
  throw Failure{"cannot order a " + std::string(a.typeName()) + " and a " +
                std::string(b.typeName())};
}

bool jinja::less(const Value &a, const Value &b) {
  return order(a, b, false) < 0;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// Python's repr of a float: the fewest digits that identify it, without an
/// exponent from 1e-4 to below 1e16.
static std::string floatText(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  std::array<char, 400> digits;
  const double magnitude = std::fabs(value);
  const bool isPlain =
      magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const std::to_chars_result end = std::to_chars(
      digits.data(), digits.data() + digits.size(), value,
      isPlain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(digits.data(), end.ptr);
  if (isPlain && text.find('.') == text.npos)
    text += ".0";
  return text;
}

/// The characters of Python's repr in place of `content`.
static std::string escapeRepr(std::string_view content, char quote) {
  std::string text;
  for (char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == quote || c == '\\')
      (text += '\\') += c;
    else if (c == '\n')
      text += "\\n";
    else if (c == '\r')
      text += "\\r";
    else if (c == '\t')
      text += "\\t";
    else if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> code;
      std::snprintf(code.data(), code.size(), "\\x%02x", byte);
      text += code.data();
    } else
      text += c;
  }
  return text;
}

/// Python's repr of a string.
static MarkedText quoted(const MarkedText &content) {
  const std::string &bytes = content.bytes();
  const char quote =
      bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"'
                                                                      : '\'';
  MarkedText result;
  result.write({&quote, 1});
  result.append(content.transform(
      [quote](std::string_view run) { return escapeRepr(run, quote); }));
  result.write({&quote, 1});
  return result;
}

static void appendText(MarkedText &text, const Value &value, bool isRepr) {
  if (const MarkedText *content = value.string()) {
    text.append(isRepr ? quoted(*content) : *content);
  } else if (value.isUndefined()) {
    if (isRepr)
      text.write("Undefined");
  } else if (value.isNone()) {
    text.write("None");
  } else if (value.isBool()) {
    text.write(value.isTrue() ? "True" : "False");
  } else if (const std::optional<int64_t> integer = value.integer()) {
    text.write(std::to_string(*integer));
  } else if (value.isLongInteger()) {
    text.write(value.digits());
  } else if (value.isFloat()) {
    text.write(floatText(value.number()));
  } else if (const ListData *list = value.list()) {
    text.write(list->isTuple ? "(" : "[");
    for (size_t i = 0; i < list->items.size(); ++i) {
      text.write(i ? ", " : "");
      appendText(text, list->items[i], true);
    }
    if (list->isTuple && list->items.size() == 1)
      text.write(",");
    text.write(list->isTuple ? ")" : "]");
  } else if (const DictData *dict = value.dict()) {
    text.write("{");
    for (size_t i = 0; i < dict->items.size(); ++i) {
      text.write(i ? ", " : "");
      text.append(quoted(dict->items[i].first));
      text.write(": ");
      appendText(text, dict->items[i].second, true);
    }
    text.write("}");
  } else {
    text.write("<" + std::string(value.typeName()) + ">");
  }
}

MarkedText jinja::toText(const Value &value) {
  MarkedText text;
  appendText(text, value, false);
  return text;
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

static void appendEscape(std::string &text, uint32_t unit) {
  std::array<char, 8> code;
  std::snprintf(code.data(), code.size(), "\\u%04x", unit);
  text += code.data();
}

/// The characters of a JSON string in place of `content`.
static std::string escapeJson(std::string_view content, bool ensureAscii) {
  std::string text;
  for (size_t i = 0; i < content.size();) {
    const DecodedChar c = decodeUtf8(content.substr(i));
    switch (c.codePoint) {
    case '"':
      text += "\\\"";
      break;
    case '\\':
      text += "\\\\";
      break;
    case '\n':
      text += "\\n";
      break;
    case '\r':
      text += "\\r";
      break;
    case '\t':
      text += "\\t";
      break;
    case '\b':
      text += "\\b";
      break;
    case '\f':
      text += "\\f";
      break;
    default:
      if (c.codePoint < 0x20 || (ensureAscii && c.codePoint > 0x7e)) {
        if (c.codePoint >= 0x10000) {
          appendEscape(text, 0xd7c0 + (c.codePoint >> 10));
          appendEscape(text, 0xdc00 + (c.codePoint & 0x3ff));
        } else {
          appendEscape(text, c.codePoint);
        }
      } else {
        text.append(content, i, c.length);
      }
    }
    i += c.length;
  }
  return text;
}

static void appendJsonString(MarkedText &text, const MarkedText &content,
                             bool ensureAscii) {
  text.write("\"");
  text.append(content.transform([ensureAscii](std::string_view run) {
    return escapeJson(run, ensureAscii);
  }));
  text.write("\"");
}

static void appendJson(MarkedText &text, const Value &value,
                       const JsonStyle &style, size_t level);

/// Appends `count` items between `open` and `close`.
template <typename Append>
static void appendJsonItems(MarkedText &text, size_t count, const char *open,
                            const char *close, const JsonStyle &style,
                            size_t level, Append append) {
  const auto newLine = [&](size_t depth) {
    if (!style.indent || count == 0)
      return;
    text.write("\n");
    for (size_t i = 0; i < depth; ++i)
      text.append(*style.indent);
  };
  text.write(open);
  for (size_t i = 0; i < count; ++i) {
    if (i)
      text.append(style.itemSeparator);
    newLine(level + 1);
    append(i);
  }
  newLine(level);
  text.write(close);
}

static void appendJson(MarkedText &text, const Value &value,
                       const JsonStyle &style, size_t level) {
  if (value.isNone()) {
    text.write("null");
  } else if (value.isBool()) {
    text.write(value.isTrue() ? "true" : "false");
  } else if (value.isFloat() && !std::isfinite(value.number())) {
    text.write(std::isnan(value.number()) ? "NaN"
               : value.number() < 0       ? "-Infinity"
                                          : "Infinity");
  } else if (value.isNumber()) {
    text.append(toText(value));
  } else if (const MarkedText *content = value.string()) {
    appendJsonString(text, *content, style.ensureAscii);
  } else if (const ListData *list = value.list()) {
    appendJsonItems(
        text, list->items.size(), "[", "]", style, level,
        [&](size_t i) { appendJson(text, list->items[i], style, level + 1); });
  } else if (const DictData *dict = value.dict()) {
    std::vector<const DictItems::value_type *> items;
    items.reserve(dict->items.size());
    for (const auto &item : dict->items)
      items.push_back(&item);
    if (style.sortKeys)
      std::sort(items.begin(), items.end(), [](const auto *a, const auto *b) {
        return a->first.bytes() < b->first.bytes();
      });
    appendJsonItems(text, items.size(), "{", "}", style, level, [&](size_t i) {
      appendJsonString(text, items[i]->first, style.ensureAscii);
      text.append(style.keySeparator);
      appendJson(text, items[i]->second, style, level + 1);
    });
  } else {
    throw Failure{"a value of type " + std::string(value.typeName()) +
                  " cannot be written as JSON"};
  }
}

MarkedText jinja::toJson(const Value &value, const JsonStyle &style) {
  MarkedText text;
  appendJson(text, value, style, 0);
  return text;
}
