//===- JsonValue.h - Checked values of JSON in files ------------*- C++ -*-===//
//
// What the readers of JSON share: each value is of the kind and in the range
// that its reader needs, or an error names it. Errors are one line, whatever
// the file has in its strings.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_JSONVALUE_H
#define QWEN_ABI_JSONVALUE_H

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

/// A value for an error message: strings, numbers and the like as JSON spells
/// them, and only the kind of arrays and objects.
std::string describe(const nlohmann::json &value);

/// How errors name a JSON text.
struct JsonSource {
  /// Begins an error about a value: "FILE: ".
  std::string prefix;
  /// Begins an error about a missing key: "FILE".
  std::string owner;
};

/// A value with the key that names it in errors: "targets[0].name". All
/// functions but isNull and isArray throw Error for a value that is not what
/// they return.
class JsonValue {
public:
  /// The whole text. `value` and `source` must outlive this and what is taken
  /// from it.
  JsonValue(const nlohmann::json &value, const JsonSource &source)
      : JsonValue(value, "", source) {}

  /// Throws Error: the key, then `what`.
  [[noreturn]] void error(const std::string &what) const;
  /// Throws Error: the value is not the `needed` one.
  [[noreturn]] void fail(const std::string &needed) const;
  /// Throws Error: the value is not supported, but `supported`.
  [[noreturn]] void refuse(const std::string &supported) const;

  bool isNull() const { return value.is_null(); }
  bool isArray() const { return value.is_array(); }

  int64_t integer(int64_t least, int64_t most) const;
  /// An integer that `divisor` divides.
  int64_t multiple(int64_t divisor, int64_t least, int64_t most) const;
  double number(double least, double most) const;
  bool boolean() const;
  /// As the file has it: not safe on a terminal (printable).
  const std::string &string() const;
  std::vector<JsonValue> elements() const;

  /// The value of `inner` in this object, or nullopt where it has none.
  std::optional<JsonValue> find(const char *inner) const;
  /// The same, or nullopt where it is null.
  std::optional<JsonValue> findValue(const char *inner) const;
  JsonValue at(const char *inner) const;

private:
  JsonValue(const nlohmann::json &value, std::string key,
            const JsonSource &source)
      : value(value), key(std::move(key)), source(source) {}

  /// The key of `inner` in this object.
  std::string keyOf(const char *inner) const {
    return key.empty() ? inner : key + "." + inner;
  }

  const nlohmann::json &value;
  std::string key;
  const JsonSource &source;
};

} // namespace qwen

#endif // QWEN_ABI_JSONVALUE_H
