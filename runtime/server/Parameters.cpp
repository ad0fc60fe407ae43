//===- Parameters.cpp - The parameters of requests ------------------------===//

#include "server/Parameters.h"

#include "server/http/ApiError.h"

#include "qwen/Support/JsonDigits.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"
#include "text/Unicode.h"

#include <algorithm>
#include <charconv>
#include <cmath>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;

//===----------------------------------------------------------------------===//
// Checks of values
//===----------------------------------------------------------------------===//

namespace {

/// A value of a request with its name in errors.
struct Checked {
  const std::string &name;
  const ParameterLimits &limits;

  [[noreturn]] void fail(const std::string &needed) const {
    throw ApiError(400, name + " must be " + needed, name);
  }
  void id(double value, const std::string &text) const;
  void ids(J value) const;
  void count(J list, int64_t most, const char *what) const;
  void biases(J value, const Parameter &row) const;
  void strings(J value, const Parameter &row) const;
  void prompts(J value) const;
  /// A prompt that is no list of prompts.
  void prompt(J value) const;
  void number(J value, const Parameter &row) const;
  /// Calls `check` with each element of a list and its name.
  template <typename Check> void forEach(J list, const Check &check) const {
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string element = indexed(name, i);
      check(Checked{element, limits}, list[i]);
    }
  }
  void text(J value, const Parameter &row) const;
  void word(J value, const Parameter &row) const;
  void words(J value, const Parameter &row) const;
  void neutral(J value, const Parameter &row) const;
  void model(J value) const;
  void flags(J value, const Parameter &row, void *to) const;
};

} // namespace

static std::string textOf(J value) { return dumpWithDigits(value); }

static std::string numberText(double value) {
  return textOf(value == std::floor(value)
                    ? ordered_json(static_cast<int64_t>(value))
                    : ordered_json(value));
}

/// Whether a value is an integer, or one with a fraction of zero where every
/// double is exact.
static bool isInteger(J value) {
  constexpr double kExact = 9007199254740992;
  if (!value.is_number_float())
    return value.is_number_integer();
  const auto number = value.get<double>();
  return std::abs(number) <= kExact && number == std::trunc(number);
}

void Checked::number(J value, const Parameter &row) const {
  const bool whole = row.kind == Kind::Integer;
  const double most =
      row.bound ? static_cast<double>(limits.*row.bound) : row.most;
  const bool good = whole ? isInteger(value) : value.is_number();
  // Not less and not more: false for NaN.
  if (!good || !(value.get<double>() >= row.least) ||
      !(value.get<double>() <= most))
    fail((whole ? "an integer" : "a number") + std::string(" from ") +
         numberText(row.least) + " to " + numberText(most) + ", not " +
         quote(textOf(value)));
}

void Checked::word(J value, const Parameter &row) const {
  std::string list;
  for (J word : ordered_json::parse(row.values))
    if (value == word)
      return;
    else
      list += (list.empty() ? "" : ", ") +
              (word.is_string() ? word.get<std::string>() : textOf(word));
  fail("one of " + list + ", not " +
       quote(value.is_string() ? value.get<std::string>() : textOf(value)));
}

void Checked::words(J value, const Parameter &row) const {
  if (!value.is_array())
    fail("an array of strings");
  forEach(value, [&](const Checked &at, J element) {
    at.word(element, row);
    if (std::ranges::count(value, element) > 1)
      at.fail("a string that comes once");
  });
}

void Checked::neutral(J value, const Parameter &row) const {
  std::string list = "null";
  for (J each : ordered_json::parse(row.values))
    if (value == each)
      return;
    else
      list = textOf(each);
  throw ApiError(400, name + " is not supported; only " + list + " is accepted",
                 name);
}

void Checked::model(J value) const {
  if (!value.is_string())
    fail("a string");
  const auto &asked = value.get_ref<const std::string &>();
  if (!asked.empty() && !limits.models.empty() &&
      !std::ranges::count(limits.models, asked))
    throw ApiError(404,
                   "no such model: " + quote(asked) + "; this server has " +
                       quote(limits.models.front()),
                   name, ErrorCode::UnknownModel);
}

void Checked::id(double value, const std::string &text) const {
  if (value < 0 || value >= static_cast<double>(limits.vocabSize))
    throw ApiError(400,
                   name + ": token id " + text +
                       " is out of vocabulary: the model has " +
                       std::to_string(limits.vocabSize) + " tokens",
                   name);
}

void Checked::ids(J value) const {
  if (!value.is_array())
    fail("an array of token ids");
  for (J each : value)
    if (isInteger(each))
      id(each.get<double>(), each.dump());
    else
      fail("an array of token ids");
}

void Checked::biases(J value, const Parameter &row) const {
  if (!value.is_object())
    fail("an object with a number for each token id");
  for (const auto &[key, bias] : value.items()) {
    int32_t parsed = 0;
    const auto [end, error] =
        std::from_chars(key.data(), key.data() + key.size(), parsed);
    if (error != std::errc() || end != key.data() + key.size() ||
        key != std::to_string(parsed))
      fail("an object with a number for each token id, not for " + quote(key));
    id(parsed, key);
    number(bias, row);
  }
}

void Checked::text(J value, const Parameter &row) const {
  if (!value.is_string())
    fail("a string");
  const auto size =
      static_cast<double>(value.get_ref<const std::string &>().size());
  if (size < row.least)
    throw ApiError(400, name + " must not be empty", name);
  if (row.most > 0 && size > row.most)
    fail("at most " + numberText(row.most) + " bytes long, not " +
         numberText(size));
}

void Checked::strings(J value, const Parameter &row) const {
  const auto check = [&](J text) {
    if (!text.is_string())
      fail("a string or an array of strings");
    const size_t size = countCodePoints(text.get_ref<const std::string &>());
    if (size == 0 || size > kMostStopCharacters)
      fail("strings of 1 to " + std::to_string(kMostStopCharacters) +
           " characters, not " + std::to_string(size));
  };
  if (!value.is_array())
    return check(value);
  count(value, mostStrings(row), "strings");
  for (J text : value)
    check(text);
}

void Checked::count(J list, int64_t most, const char *what) const {
  if (std::ssize(list) > most)
    fail("at most " + std::to_string(most) + " " + what + ", not " +
         std::to_string(list.size()));
}

void Checked::prompt(J value) const {
  if (value.is_string())
    return;
  if (value.is_object()) {
    const auto known = [](const std::string &key) {
      return std::ranges::find(kPromptTexts, key) != std::end(kPromptTexts);
    };
    if (value.size() == 1 && known(value.begin().key()) &&
        value.begin()->is_string())
      return;
    fail("an object with a string as text or prompt_string alone: the model "
         "reads text only");
  }
  if (!value.is_array() || value.empty())
    fail("a string, an object with a text, or an array of token ids, not "
         "empty");
  for (J part : value)
    if (isInteger(part))
      id(part.get<double>(), part.dump());
    else if (!part.is_string() || part == "")
      fail("an array of token ids and strings, none of them empty");
}

void Checked::prompts(J value) const {
  const bool isList =
      value.is_array() && !value.empty() &&
      std::ranges::none_of(value, [](J each) { return each.is_number(); });
  if (!isList)
    return prompt(value);
  count(value, kMostInputs, "inputs");
  forEach(value, [](const Checked &at, J element) { at.prompt(element); });
}

void Checked::flags(J value, const Parameter &row, void *to) const {
  if (!value.is_object())
    fail("an object");
  for (const auto &[key, member] : value.items()) {
    const std::string inner = name + "." + printable(key.substr(0, 200));
    const auto found = std::ranges::find(row.members, key, &Parameter::name);
    if (found == row.members.end()) {
      refuseUnknown(inner, limits);
    } else if (!member.is_null()) {
      if (!member.is_boolean())
        throw ApiError(400, inner + " must be a boolean", inner);
      if (found->store)
        found->store(to, member);
    }
  }
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

static void storeParameter(const Parameter &row, J value,
                           const ParameterLimits &limits, void *to) {
  const std::string name(row.name);
  const Checked checked{name, limits};
  switch (row.kind) {
  case Kind::Boolean:
    if (!value.is_boolean())
      checked.fail("a boolean");
    break;
  case Kind::Integer:
  case Kind::Number:
    checked.number(value, row);
    break;
  case Kind::Seed:
    if (!isInteger(value))
      checked.fail("an integer of 64 bits, not " + quote(textOf(value)));
    break;
  case Kind::String:
    checked.text(value, row);
    break;
  case Kind::Word:
    checked.word(value, row);
    break;
  case Kind::Model:
    checked.model(value);
    break;
  case Kind::Ids:
    checked.ids(value);
    break;
  case Kind::Biases:
    checked.biases(value, row);
    break;
  case Kind::Object:
    if (!value.is_object())
      checked.fail("an object");
    break;
  case Kind::Strings:
    checked.strings(value, row);
    break;
  case Kind::Words:
    checked.words(value, row);
    break;
  case Kind::Prompts:
    checked.prompts(value);
    break;
  case Kind::Flags:
    return checked.flags(value, row, to);
  case Kind::Own: {
    const ordered_json read = row.own->read(value, name, limits);
    if (row.store)
      row.store(to, read);
    return;
  }
  case Kind::Ignored:
    return;
  case Kind::Neutral:
    if (!limits.ignoreUnknown)
      checked.neutral(value, row);
    return;
  }
  if ((row.traits & kOfThinking) && !limits.thinks && value != -1)
    throw ApiError(400,
                   name + " needs a model with the tokens <think> and </think>",
                   name);
  if (row.store)
    row.store(to, value);
}

void server::refuseUnknown(const std::string &name,
                           const ParameterLimits &limits) {
  if (!limits.takesUnknown())
    throw unknownParameter(name);
  limits.note("unknown parameter " + name + " has no effect");
}

/// Refuses parameters that are not in a table.
static void requireKnown(J body, const ParameterLimits &limits,
                         std::span<const ParameterGroup> groups) {
  for (const auto &[key, value] : body.items())
    if (std::ranges::none_of(groups, [&](const ParameterGroup &group) {
          return std::ranges::find(group.table->rows, key, &Parameter::name) !=
                 group.table->rows.end();
        }))
      refuseUnknown(printable(key.substr(0, 200)), limits);
}

void server::requireMembers(J object, const std::string &name,
                            const std::vector<std::string_view> &known,
                            const ParameterLimits &limits) {
  for (const auto &[key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      refuseUnknown(name + "." + printable(key.substr(0, 200)), limits);
}

void server::requireMembers(J object, const std::string &name,
                            const std::vector<std::string_view> &known) {
  requireMembers(object, name, known, {});
}

bool server::hasParameter(J body, std::string_view name) {
  const auto found = body.find(name);
  return found != body.end() && !found->is_null();
}

/// Whether a later group has a row of this name, which takes its place.
static bool isReplaced(std::string_view name, size_t index,
                       std::span<const ParameterGroup> groups) {
  return std::ranges::any_of(
      groups.subspan(index + 1), [&](const ParameterGroup &later) {
        return std::ranges::find(later.table->rows, name, &Parameter::name) !=
               later.table->rows.end();
      });
}

void server::parseParameters(std::string_view text,
                             const ParameterLimits &limits,
                             std::span<const ParameterGroup> groups) {
  const ordered_json body = [&] {
    try {
      return parseObjectWithDigits(text, "the body", kRequestJson);
    } catch (const Error &error) {
      throw ApiError(400, error.what());
    }
  }();
  requireKnown(body, limits, groups);
  for (size_t i = 0; i < groups.size(); ++i)
    for (const Parameter &row : groups[i].table->rows)
      if (hasParameter(body, row.name)) {
        if (!isReplaced(row.name, i, groups))
          storeParameter(row, body[row.name], limits, groups[i].values);
      } else if (row.traits & kRequired)
        throw ApiError(400, std::string(row.name) + " is missing",
                       std::string(row.name));
  for (const ParameterGroup &group : groups)
    for (const ParameterRule &rule : group.table->rules)
      if (!rule.holds(body, group.values))
        throw ApiError(400,
                       std::string(rule.name) + " " + std::string(rule.error),
                       std::string(rule.name));
}
