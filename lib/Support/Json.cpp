//===- Json.cpp - Bounds of JSON in files ---------------------------------===//

#include "qwen/Support/Json.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

using namespace qwen;
using nlohmann::json;

/// The place of an escape such as "\ud83d" without its other half at the end of
/// `text`, where a parser has stopped.
static std::optional<size_t> loneSurrogate(std::string_view text) {
  constexpr size_t kSize = 6;
  const auto isHalf = [&](size_t at, std::string_view digits) {
    return text.size() >= at + kSize && text[at] == '\\' &&
           text[at + 1] == 'u' && (text[at + 2] | 0x20) == 'd' &&
           digits.find(static_cast<char>(text[at + 3] | 0x20)) != digits.npos;
  };
  // A parser stops at the end of a low half, or within what follows a high one.
  const size_t first = text.size() - std::min(text.size(), 2 * kSize);
  for (size_t at = first; at + kSize <= text.size(); ++at)
    if (isHalf(at, "89ab") || (at + kSize == text.size() && isHalf(at, "cdef")))
      return at;
  return std::nullopt;
}

namespace {
/// Checks the events of the SAX parser. (The DOM parser with a callback
/// searches an object again after each object in it.)
class Checker final : public json::json_sax_t {
public:
  Checker(std::string_view text, const ErrorText &what,
          const JsonLimits &limits)
      : text(text), what(what), limits(limits) {}

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
  /// `end` is the number of bytes that are read.
  bool parse_error(size_t end, const std::string &,
                   const json::exception &error) override {
    constexpr int kNumberTooLarge = 406;
    if (error.id == kNumberTooLarge)
      throw Error(what +
                  " has a number that is too large, which ends at byte " +
                  std::to_string(end));
    const bool isHalf =
        std::string_view(error.what()).find("surrogate") != std::string::npos;
    if (const auto at =
            isHalf ? loneSurrogate(text.substr(0, end)) : std::nullopt)
      throw Error(what + " is not JSON: " + printable(text.substr(*at, 6)) +
                  " at byte " + std::to_string(*at + 1) +
                  " is one half of a surrogate pair");
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
    std::string message = " has " + found;
    const char *before = " in ";
    for (size_t i = levels.size() - 1; i-- > 0;)
      if (!levels[i].keys.empty()) {
        message += before + quote(levels[i].key);
        before = " of ";
      }
    throw Error(what + message);
  }

  const std::string_view text;
  const ErrorText &what;
  const JsonLimits &limits;
  std::vector<Level> levels;
};
} // namespace

namespace {
/// Collects the keys of one object.
class KeyCollector final : public json::json_sax_t {
public:
  explicit KeyCollector(std::string_view path) : wanted(path) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string &) override {
    return true;
  }
  bool string(std::string &) override { return true; }
  bool binary(json::binary_t &) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string &,
                   const json::exception &) override {
    return false;
  }

  bool key(std::string &name) override {
    if (paths.back() == wanted)
      keys.push_back(name);
    // Longer paths lead elsewhere.
    next = paths.back() + (paths.back().empty() ? "" : ".") + name;
    next.resize(std::min(next.size(), wanted.size() + 1));
    return true;
  }

  std::vector<std::string> keys;

private:
  bool open() {
    paths.push_back(next);
    return true;
  }
  bool close() {
    paths.pop_back();
    return true;
  }

  const std::string_view wanted;
  /// Of the arrays and objects that have not ended yet, and of the next one.
  std::vector<std::string> paths;
  std::string next;
};
} // namespace

std::vector<std::string> qwen::keysInOrder(std::string_view text,
                                           std::string_view path) {
  KeyCollector collector(path);
  json::sax_parse(text, &collector);
  return std::move(collector.keys);
}

void qwen::checkJson(std::string_view text, const ErrorText &what,
                     const JsonLimits &limits) {
  Checker checker(text, what, limits);
  json::sax_parse(text, &checker);
}
