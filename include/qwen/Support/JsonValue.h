//===- JsonValue.h - Checked values of JSON in files ------------*- C++ -*-===//
//
// The readers of JSON files share these checks of the kind and range of each
// value. An error names the value in one line, whatever its strings contain.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_JSONVALUE_H
#define QWEN_SUPPORT_JSONVALUE_H

#include "qwen/Support/Error.h"
#include "qwen/Support/Fact.h"
#include "qwen/Support/Json.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace qwen {

/// A value for an error message: the kind of an array or object, the JSON text
/// of any other value.
std::string describe(const nlohmann::json &value);

/// Parses `text`, which must be a JSON object, as nlohmann::json or
/// nlohmann::ordered_json. Throws Error like checkJson, and for JSON that is
/// not an object. The message begins with `what`.
template <typename Json>
Json parseJsonObject(std::string_view text, const ErrorText &what,
                     const JsonLimits &limits = {}) {
  checkJson(text, what, limits);
  Json value = Json::parse(text);
  if (!value.is_object())
    throw Error(what + " has " + part::found(describe(value)) + " when " +
                part::needed("a JSON object") + " is needed");
  return value;
}

/// parseJsonObject with all digits of integers (parseWithDigits).
nlohmann::ordered_json parseObjectWithDigits(std::string_view text,
                                             const ErrorText &what,
                                             const JsonLimits &limits = {});

/// What of a JSON text was read, by address: the keys that somebody looked for
/// and found, and the objects in which somebody looked for a key.
using JsonReads = std::unordered_set<const void *>;

/// How errors name a JSON text, and what else is known about it.
struct JsonSource {
  /// Begins an error about a value: "FILE: ".
  ErrorText prefix;
  /// Begins an error about a missing key: "FILE".
  ErrorText owner;
  /// If there is one, it gets what find, findValue and at look for.
  JsonReads *read = nullptr;
  /// If there is one, it gives the keys of an object of this name in the order
  /// of the text (keysInOrder).
  std::function<std::vector<std::string>(const std::string &)> keysOf = {};

  /// The JSON that is the whole of the file `path`.
  static JsonSource ofFile(const std::string &path, JsonReads *read = nullptr) {
    return {part::file(path) + ": ", part::file(path), read};
  }
};

/// A value with the key that names it in errors: "targets[0].name". All
/// functions except isNull and isArray throw Error if the value does not have
/// the kind or range of their result.
class JsonValue {
public:
  /// The value of a whole text. `value` and `source` must outlive this object
  /// and all values taken from it.
  JsonValue(const nlohmann::json &value, const JsonSource &source)
      : JsonValue(value, "", source) {}
  /// The value of the key `key` of a text.
  JsonValue(const nlohmann::json &value, std::string key,
            const JsonSource &source)
      : value(value), key(std::move(key)), source(source) {}

  /// Throws Error with the key and `what`.
  [[noreturn]] void error(const ErrorText &what) const;
  /// Throws Error: the value is not what is `needed`.
  [[noreturn]] void fail(const std::string &needed) const;
  /// Throws Error: the value is not supported; `supported` is.
  [[noreturn]] void refuse(const std::string &supported) const;

  bool isNull() const { return value.is_null(); }
  bool isArray() const { return value.is_array(); }
  bool isObject() const { return value.is_object(); }
  bool is(const nlohmann::json &other) const { return value == other; }
  /// Whether `other` is of the same kind; numbers are of one.
  bool isOfKind(const nlohmann::json &other) const {
    return value.type() == other.type() ||
           (value.is_number() && other.is_number());
  }
  /// The key that errors name.
  const std::string &name() const { return key; }
  /// What errors about it begin with: "FILE: KEY".
  ErrorText what() const { return source.prefix + part::subject(key); }

  int64_t integer(int64_t least, int64_t most) const;
  /// An integer that `divisor` divides.
  int64_t multiple(int64_t divisor, int64_t least, int64_t most) const;
  double number(double least, double most) const;
  bool boolean() const;
  /// The string of the file, which is not safe on a terminal (see printable).
  const std::string &string() const;
  std::vector<JsonValue> elements() const;
  /// The keys of an object and their values, in the order of the text if the
  /// source knows it. All count as looked for.
  std::vector<std::pair<std::string, JsonValue>> members() const;

  /// The value of the key `inner`, or nullopt if it is missing.
  std::optional<JsonValue> find(const char *inner) const;
  /// The value of the key `inner`, or nullopt if it is missing or null.
  std::optional<JsonValue> findValue(const char *inner) const;
  JsonValue at(const char *inner) const;

  /// Sets the fact of `object` to this value.
  template <typename Struct>
  void read(const Fact<Struct> &fact, Struct &object) const {
    fact.visitIn(object, [&](auto &member) {
      using Member = std::remove_reference_t<decltype(member)>;
      if constexpr (std::is_same_v<Member, bool>)
        member = boolean();
      else if constexpr (std::is_same_v<Member, double>)
        member = number(fact.least, fact.most);
      else
        member = multiple(fact.divisor, static_cast<int64_t>(fact.least),
                          static_cast<int64_t>(fact.most));
    });
  }

  /// The keys of this object that nobody looked for, with their values. Keys of
  /// inner objects, also of arrays, are among them if somebody looked for
  /// another key of that object. The source must have a list of reads.
  std::vector<std::pair<std::string, JsonValue>> unread() const;

private:
  /// The name of the key `inner` in errors.
  std::string keyOf(const std::string &inner) const {
    return key.empty() ? inner : key + "." + inner;
  }

  const nlohmann::json &value;
  std::string key;
  const JsonSource &source;
};

} // namespace qwen

#endif // QWEN_SUPPORT_JSONVALUE_H
