//===- JsonDigits.cpp - Integers of JSON with all their digits ------------===//

#include "qwen/Support/JsonDigits.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

using namespace qwen;
using nlohmann::ordered_json;

namespace {
/// Builds the values of a text that was checked. JSON has no binary values, so
/// that these stand for digits.
class Builder final : public nlohmann::json_sax<ordered_json> {
public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t &text) override {
    if (text.find_first_of(".eE") != std::string::npos)
      return add(value);
    return add(ordered_json::binary({text.begin(), text.end()}));
  }
  bool string(string_t &value) override { return add(std::move(value)); }
  bool binary(binary_t &value) override { return add(value); }
  bool start_object(size_t) override { return open(ordered_json::object()); }
  bool start_array(size_t) override { return open(ordered_json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t &value) override {
    name = std::move(value);
    return true;
  }
  bool parse_error(size_t, const std::string &,
                   const nlohmann::detail::exception &) override {
    return false;
  }

  ordered_json root;

private:
  ordered_json &place(ordered_json value) {
    if (levels.empty())
      return root = std::move(value);
    ordered_json &last = *levels.back();
    if (last.is_object())
      return last[name] = std::move(value);
    last.push_back(std::move(value));
    return last.back();
  }
  bool add(ordered_json value) {
    place(std::move(value));
    return true;
  }
  bool open(ordered_json value) {
    levels.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    levels.pop_back();
    return true;
  }

  /// The arrays and objects that have not ended. Each is the last value of the
  /// one before it, and so stays where it is.
  std::vector<ordered_json *> levels;
  std::string name;
};
} // namespace

ordered_json qwen::parseWithDigits(std::string_view text, const ErrorText &what,
                                   const JsonLimits &limits) {
  checkJson(text, what, limits);
  Builder builder;
  ordered_json::sax_parse(text, &builder);
  return std::move(builder.root);
}

std::optional<std::string> qwen::digitsOf(const ordered_json &value) {
  if (!value.is_binary())
    return std::nullopt;
  const auto &bytes = value.get_binary();
  return std::string(bytes.begin(), bytes.end());
}

static bool hasDigits(const ordered_json &value) {
  return value.is_binary() ||
         (value.is_structured() && std::ranges::any_of(value, hasDigits));
}

static std::string dumpPlain(const ordered_json &value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string qwen::dumpWithDigits(const ordered_json &value) {
  if (!hasDigits(value))
    return dumpPlain(value);
  if (const std::optional<std::string> digits = digitsOf(value))
    return *digits;
  std::string text;
  for (const auto &[key, each] : value.items()) {
    text += text.empty() ? "" : ",";
    if (value.is_object())
      text += dumpPlain(key) + ":";
    text += dumpWithDigits(each);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

ordered_json qwen::withDoubles(ordered_json value) {
  if (const std::optional<std::string> digits = digitsOf(value))
    return std::strtod(digits->c_str(), nullptr);
  if (value.is_structured())
    for (ordered_json &each : value)
      each = withDoubles(std::move(each));
  return value;
}
