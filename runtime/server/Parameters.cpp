//===- Parameters.cpp - The parameters of requests ------------------------===//

#include "server/Parameters.h"

#include "server/ApiError.h"
#include "server/Messages.h"

#include "qwen/ABI/JsonValue.h"
#include "qwen/ABI/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using P = Parameters;
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
  void strings(J value) const;
  void prompts(J value) const;
  void documents(J value) const;
  void number(J value, const Parameter &row) const;
  /// Calls `check` with each element of a list and its name.
  template <typename Check> void forEach(J list, const Check &check) const {
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string element = indexed(name, i);
      check(Checked{element, limits}, list[i]);
    }
  }
};

} // namespace

static std::string numberText(double value) {
  return ordered_json(value == std::floor(value)
                          ? ordered_json(static_cast<int64_t>(value))
                          : ordered_json(value))
      .dump();
}

void Checked::number(J value, const Parameter &row) const {
  const bool isInteger = row.kind == Kind::Integer;
  const bool good = isInteger ? value.is_number_integer() : value.is_number();
  // Not less and not more: false for NaN.
  if (!good || !(value.get<double>() >= row.least) ||
      !(value.get<double>() <= row.most))
    fail((isInteger ? "an integer" : "a number") + std::string(" from ") +
         numberText(row.least) + " to " + numberText(row.most) + ", not " +
         quote(value.dump(-1, ' ', false,
                          ordered_json::error_handler_t::replace)));
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
    if (each.is_number_integer())
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
    if (error != std::errc() || end != key.data() + key.size())
      fail("an object with a number for each token id, not for " + quote(key));
    id(parsed, key);
    number(bias, row);
  }
}

void Checked::strings(J value) const {
  constexpr size_t kMostStrings = 64, kMostBytes = 1024;
  const auto check = [&](J text) {
    if (!text.is_string())
      fail("a string or an array of strings");
    const size_t size = text.get_ref<const std::string &>().size();
    if (size == 0 || size > kMostBytes)
      fail("strings of 1 to " + std::to_string(kMostBytes) + " bytes, not " +
           std::to_string(size));
  };
  if (!value.is_array())
    return check(value);
  if (value.size() > kMostStrings)
    fail("at most " + std::to_string(kMostStrings) + " strings, not " +
         std::to_string(value.size()));
  for (J text : value)
    check(text);
}

void Checked::count(J list, int64_t most, const char *what) const {
  if (std::ssize(list) > most)
    fail("at most " + std::to_string(most) + " " + what + ", not " +
         std::to_string(list.size()));
}

void Checked::prompts(J value) const {
  if (value.is_string())
    return;
  const char *const needed =
      "a string, an array of strings, an array of token ids or an array of "
      "arrays of token ids, none of them empty";
  if (!value.is_array() || value.empty())
    fail(needed);
  if (value.front().is_number())
    return ids(value);
  count(value, kMostInputs, "inputs");
  forEach(value, [](const Checked &at, J element) {
    if (element.is_array() && !element.empty())
      at.ids(element);
    else if (!element.is_string())
      at.fail("a string or an array of token ids, not empty");
  });
}

void Checked::documents(J value) const {
  if (!value.is_array() || value.empty())
    fail("an array of texts, not empty");
  count(value, kMostInputs, "documents");
  forEach(value, [](const Checked &at, J element) {
    if (!element.is_string() &&
        !(element.is_object() && element.contains("text") &&
          element["text"].is_string()))
      at.fail("a text, or an object with a text");
  });
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

static void storeParameter(const Parameter &row, J value,
                           const std::string &name,
                           const ParameterLimits &limits, P &to) {
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
  case Kind::String:
    if (!value.is_string())
      checked.fail("a string");
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
    checked.strings(value);
    break;
  case Kind::Prompts:
    checked.prompts(value);
    break;
  case Kind::Documents:
    checked.documents(value);
    break;
  case Kind::Messages:
    return row.store(to, messagesOf(value, name, limits.ignoreUnknown));
  case Kind::Ignored:
    return;
  case Kind::Neutral:
    if (!limits.ignoreUnknown && value != ordered_json::parse(row.neutral))
      throw ApiError(400,
                     name + " is not supported; only " +
                         std::string(row.neutral) + " is accepted",
                     name);
    return;
  }
  row.store(to, value);
}

/// Rules about several parameters.
static void checkTogether(ParameterSet set, J body, const P &parameters) {
  const auto need = [&](bool good, const char *name, const char *what) {
    if (!good)
      throw ApiError(400, std::string(name) + " " + what, name);
  };
  if (set == kChatParameters) {
    need(!parameters.messages.is_null(), "messages", "is missing");
    need(parameters.logprobs || !parameters.topLogprobs, "top_logprobs",
         "needs logprobs");
    need(!parameters.continueFinalMessage || !parameters.addGenerationPrompt ||
             !body.contains("add_generation_prompt"),
         "continue_final_message", "excludes add_generation_prompt");
  }
  if (set == kCompletionParameters || set == kTokenizeParameters)
    need(!parameters.prompts.empty(), "prompt", "is missing");
  if (set == kEmbeddingParameters)
    need(!parameters.prompts.empty(), "input", "is missing");
  if (set == kRerankParameters) {
    need(body.contains("query"), "query", "is missing");
    need(!parameters.documents.empty(), "documents", "is missing");
  }
  if (set == kDetokenizeParameters)
    need(body.contains("tokens"), "tokens", "is missing");
  need(parameters.sampling.minTokens <=
           parameters.maxTokens.value_or(parameters.sampling.minTokens),
       "min_tokens", "must be at most max_tokens");
  need(parameters.stream || !parameters.hasStreamOptions, "stream_options",
       "needs stream");
  need(!body.contains("cache_salt") || body["cache_salt"].is_null() ||
           !parameters.cacheSalt.empty(),
       "cache_salt", "must not be empty");
}

void server::parseParameters(std::string_view text, ParameterSet set,
                             const ParameterLimits &limits, Parameters &to) {
  const ordered_json body = [&] {
    try {
      return parseJsonObject<ordered_json>(
          text, "the body",
          {.depth = 64, .elements = size_t{1} << 20, .keys = 1024});
    } catch (const Error &error) {
      throw ApiError(400, error.what());
    }
  }();
  const std::span<const Parameter> table = parameterTable();
  for (const auto &[key, value] : body.items()) {
    const auto row = std::ranges::find_if(table, [&](const Parameter &each) {
      return each.name == key && (each.sets & set);
    });
    const std::string name = printable(key.substr(0, 200));
    if (row != table.end() && !value.is_null())
      storeParameter(*row, value, name, limits, to);
    else if (row == table.end() && !limits.ignoreUnknown)
      throw ApiError(400, "unknown parameter " + name, name,
                     "unknown_parameter");
  }
  // -1 keeps all tokens, as 0 does.
  to.sampling.topK = std::max<int64_t>(to.sampling.topK, 0);
  checkTogether(set, body, to);
}
