//===- Json.cpp - Bounds of JSON in files ---------------------------------===//

#include "qwen/ABI/Json.h"

#include "qwen/ABI/Error.h"
#include "qwen/ABI/Text.h"

#include <nlohmann/json.hpp>

#include <set>
#include <vector>

using namespace qwen;
using nlohmann::json;

namespace {
/// Checks the events of the SAX parser. (The DOM parser with a callback
/// searches an object again after each object in it.)
class Checker final : public json::json_sax_t {
public:
  Checker(const std::string &what, const JsonLimits &limits)
      : what(what), limits(limits) {}

  bool null() override { return addValue(); }
  bool boolean(bool) override { return addValue(); }
  bool number_integer(json::number_integer_t) override { return addValue(); }
  bool number_unsigned(json::number_unsigned_t) override { return addValue(); }
  bool number_float(json::number_float_t, const std::string &) override {
    return addValue();
  }
  bool string(std::string &) override { return addValue(); }
  bool binary(json::binary_t &) override { return addValue(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string &name) override {
    Level &object = levels.back();
    if (!object.keys.insert(name).second)
      fail(quote(name) + " twice");
    if (object.keys.size() > limits.keys)
      fail("more than " + std::to_string(limits.keys) + " keys");
    object.key = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string &,
                   const json::exception &) override {
    throw Error(what + " is not JSON");
  }

private:
  /// An array or object that has not ended yet.
  struct Level {
    size_t elements = 0;
    std::set<std::string> keys;
    /// The last of the keys.
    std::string key;
  };

  bool addValue() {
    if (!levels.empty() && levels.back().keys.empty() &&
        ++levels.back().elements > limits.elements)
      fail("more than " + std::to_string(limits.elements) + " elements");
    return true;
  }
  bool open() {
    addValue();
    if (levels.size() == limits.depth)
      throw Error(what + " has arrays and objects nested more than " +
                  std::to_string(limits.depth) + " deep");
    levels.emplace_back();
    return true;
  }
  bool close() {
    levels.pop_back();
    return true;
  }

  /// Names the innermost array or object by the keys that lead to it.
  [[noreturn]] void fail(const std::string &found) const {
    std::string message = what + " has " + found;
    const char *before = " in ";
    for (size_t i = levels.size() - 1; i-- > 0;)
      if (!levels[i].keys.empty()) {
        message += before + quote(levels[i].key);
        before = " of ";
      }
    throw Error(message);
  }

  const std::string &what;
  const JsonLimits &limits;
  std::vector<Level> levels;
};
} // namespace

void qwen::checkJson(std::string_view text, const std::string &what,
                     const JsonLimits &limits) {
  Checker checker(what, limits);
  json::sax_parse(text, &checker);
}
