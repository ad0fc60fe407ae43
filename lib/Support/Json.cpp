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

/// "line 3, column 14", or "column 14" of a text of one line: where the byte
/// `offset` of `text` is. A column counts characters.
static std::string placeOf(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t lineStart = before.rfind('\n') + 1;
  const auto isFirstByte = [](char c) { return (c & 0xc0) != 0x80; };
  const auto line = std::ranges::count(before, '\n') + 1;
  const auto column =
      std::ranges::count_if(before.substr(lineStart), isFirstByte) + 1;
  return (text.find('\n') == text.npos
              ? ""
              : "line " + std::to_string(line) + ", ") +
         "column " + std::to_string(column);
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
    const size_t last = std::max<size_t>(end, 1) - 1;
    if (error.id == kNumberTooLarge)
      throw Error(what + " has a number that is too large, which ends at " +
                  placeOf(text, last));
    const auto says = [&](std::string_view words) {
      return std::string_view(error.what()).find(words) != std::string::npos;
    };
    if (const auto at = says("surrogate") ? loneSurrogate(text.substr(0, end))
                                          : std::nullopt)
      throw Error(what + " is not JSON: " + printable(text.substr(*at, 6)) +
                  " at " + placeOf(text, *at) +
                  " is one half of a surrogate pair");
    if (text.empty())
      throw Error(what + " is not JSON: it is empty");
    if (end > text.size() || says("unexpected end of input"))
      throw Error(what + " is not JSON: it ends too early, at " +
                  placeOf(text, text.size()));
    throw Error(what + " is not JSON at " + placeOf(text, last));
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
  /// Paths of the arrays and objects that have not ended yet, and of the next
  /// one.
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
