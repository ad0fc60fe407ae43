//===- JinjaValue.h - Values of a template ----------------------*- C++ -*-===//
//
// The Python values of a template, and Python's rules for them: truth,
// equality, order, str() and json.dumps(). Values are immutable except for
// objects (namespaces, loops), which the interpreter owns.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_JINJAVALUE_H
#define QWEN_RUNTIME_JINJA_JINJAVALUE_H

#include "text/MarkedText.h"

#include "qwen/Support/Error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace qwen::jinja {

class Interpreter;
class Value;

/// An error while a template runs; the interpreter adds the line.
struct Failure {
  std::string what;
};

/// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A namespace, a loop or something callable.
class Object {
public:
  virtual ~Object() = default;
  /// For messages: "namespace".
  virtual std::string_view typeName() const = 0;
  virtual std::optional<Value> attribute(Interpreter &interpreter,
                                         std::string_view name);
  virtual Value call(Interpreter &interpreter, const Arguments &arguments);
  virtual bool isCallable() const { return false; }
};

struct ListData;
struct DictData;

/// The value of a name that is not defined.
struct Undefined {
  /// The name or path that is not defined, for messages.
  std::shared_ptr<const std::string> hint;
};

class Value {
public:
  Value() : data(nullptr) {}
  Value(bool value) : data(value) {}
  Value(int64_t value) : data(value) {}
  Value(double value) : data(value) {}
  Value(MarkedText value)
      : data(std::make_shared<const MarkedText>(std::move(value))) {}
  /// A string of the template.
  Value(const char *value) : Value(MarkedText(value, Origin::Template)) {}
  Value(std::shared_ptr<const ListData> value) : data(std::move(value)) {}
  Value(std::shared_ptr<const DictData> value) : data(std::move(value)) {}
  Value(Object *value) : data(value) {}
  static Value undefined(std::string hint);
  /// An int past 64 bits. It has the text of its digits, and counts as the
  /// nearest float.
  static Value longInteger(std::string digits);

  bool isUndefined() const { return std::holds_alternative<Undefined>(data); }
  bool isNone() const { return std::holds_alternative<std::nullptr_t>(data); }
  bool isBool() const { return std::holds_alternative<bool>(data); }
  bool isInt() const { return std::holds_alternative<int64_t>(data); }
  bool isFloat() const {
    return std::holds_alternative<double>(data) || isLongInteger();
  }
  bool isLongInteger() const {
    return std::holds_alternative<LongInteger>(data);
  }
  /// An int, a float or, as in Python, a bool.
  bool isNumber() const { return isInt() || isFloat() || isBool(); }
  bool isString() const { return string() != nullptr; }
  bool isList() const { return list() != nullptr; }
  bool isDict() const { return dict() != nullptr; }

  /// The string, list, dict or object, or null for other types.
  const MarkedText *string() const;
  const ListData *list() const;
  const DictData *dict() const;
  Object *object() const;
  /// The int, or a bool as 0 or 1; nullopt for others.
  std::optional<int64_t> integer() const;
  /// The number as a float; 0 for others.
  double number() const;
  const std::string &digits() const {
    return *std::get<LongInteger>(data).digits;
  }
  /// The hint of an undefined value.
  const std::string &undefinedHint() const;

  bool isTrue() const;
  /// Name of the Python type.
  std::string_view typeName() const;
  /// Bytes of a string, items of a list or dict; 0 for others.
  uint64_t size() const;
  /// Depth of nested lists and dicts.
  uint32_t depth() const;
  /// Approximate size of its text in bytes. Lists may share parts, so this may
  /// be far more than their memory.
  uint64_t weight() const;

private:
  struct LongInteger {
    double nearest;
    std::shared_ptr<const std::string> digits;
  };
  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, LongInteger,
               std::shared_ptr<const MarkedText>,
               std::shared_ptr<const ListData>, std::shared_ptr<const DictData>,
               Object *>
      data;
};

struct ListData {
  std::vector<Value> items;
  uint32_t depth = 1;
  uint64_t weight = 1;
  bool isTuple = false;
};

/// The items of a dict under construction, or of a whole one.
using DictItems = std::vector<std::pair<MarkedText, Value>>;

struct DictData {
  DictItems items;
  uint32_t depth = 1;
  uint64_t weight = 1;

  const Value *find(std::string_view key) const;
};

/// Python's ==. Its time is linear in the weight of the values, as for `less`.
bool equal(const Value &a, const Value &b);

/// Python's <. Throws Failure for values without an order.
bool less(const Value &a, const Value &b);

/// Python's str(), and repr() of strings within lists. Numbers count as written
/// by the template.
MarkedText toText(const Value &value);

/// Options of json.dumps.
struct JsonStyle {
  bool ensureAscii = false;
  bool sortKeys = false;
  /// Spaces or text of one level; nullopt for one line.
  std::optional<MarkedText> indent;
  MarkedText itemSeparator = {", ", Origin::Template};
  MarkedText keySeparator = {": ", Origin::Template};
};

/// Python's json.dumps. Throws Failure for values that JSON does not have.
MarkedText toJson(const Value &value, const JsonStyle &style);

} // namespace qwen::jinja

#endif // QWEN_RUNTIME_JINJA_JINJAVALUE_H
