//===- CustomText.cpp - The text of a call of a custom tool ---------------===//

#include "server/protocols/responses/CustomText.h"

#include "server/protocols/responses/Tools.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

/// The number of bytes of arguments up to their text; 0 if they do not begin
/// with it, or not yet.
static size_t beforeText(std::string_view json) {
  const std::string key = "\"" + std::string(responses::kCustomInput) + "\"";
  size_t at = 0;
  for (const std::string_view part :
       {std::string_view("{"), std::string_view(key), std::string_view(":"),
        std::string_view("\"")}) {
    at = std::min(json.find_first_not_of(" \t\r\n", at), json.size());
    if (!json.substr(at).starts_with(part))
      return 0;
    at += part.size();
  }
  return at;
}

/// The number of bytes of the escape that `json` begins with; 0 if it is not
/// complete. Halves of surrogate pairs come in twos (JsonScanner).
static size_t escapeSize(std::string_view json) {
  constexpr size_t kUnit = 6;
  size_t size = 2;
  if (json.size() > 1 && json[1] == 'u') {
    size = kUnit;
    const std::string_view digits = json.substr(2, 2);
    if (digits.size() == 2 && (digits[0] == 'd' || digits[0] == 'D') &&
        std::string_view("89abAB").find(digits[1]) != std::string_view::npos)
      size = 2 * kUnit;
  }
  return json.size() < size ? 0 : size;
}

std::string responses::CustomText::push(std::string_view json) {
  if (state == State::Behind)
    return "";
  held += json;
  size_t at = 0;
  if (state == State::Before) {
    at = beforeText(held);
    if (at == 0)
      return "";
    state = State::Inside;
  }
  std::string text;
  while (at < held.size() && held[at] != '"') {
    if (held[at] != '\\') {
      text += held[at++];
      continue;
    }
    const size_t size = escapeSize(std::string_view(held).substr(at));
    if (size == 0)
      break;
    const ordered_json escape = ordered_json::parse(
        "\"" + held.substr(at, size) + "\"", nullptr, false);
    if (escape.is_string())
      text += escape.get_ref<const std::string &>();
    at += size;
  }
  if (at < held.size() && held[at] == '"')
    state = State::Behind;
  held.erase(0, at);
  return text;
}

std::string responses::CustomText::finish() const {
  if (state != State::Before)
    return "";
  const ordered_json arguments = ordered_json::parse(held, nullptr, false);
  if (arguments.is_discarded())
    return "";
  if (arguments.is_object()) {
    ordered_json value = arguments.value(kCustomInput, ordered_json());
    if (value.is_null() && arguments.size() == 1)
      value = arguments.front();
    if (value.is_string())
      return value;
  }
  return held;
}
