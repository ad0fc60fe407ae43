//===- Parameters.cpp - The parameters of requests ------------------------===//

#include "server/Parameters.h"

#include "server/ApiError.h"

#include "qwen/ABI/JsonValue.h"
#include "qwen/ABI/Text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using P = Parameters;
using J = const ordered_json &;
using Kind = ParameterKind;

static std::vector<std::string> stringsOf(J value) {
  if (value.is_string())
    return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

static std::vector<Prompt> promptsOf(J value) {
  if (value.is_string())
    return {value.get<std::string>()};
  if (value.front().is_number())
    return {value.get<std::vector<int32_t>>()};
  std::vector<Prompt> prompts;
  for (J element : value)
    if (element.is_string())
      prompts.emplace_back(element.get<std::string>());
    else
      prompts.emplace_back(element.get<std::vector<int32_t>>());
  return prompts;
}

static std::vector<std::string> documentsOf(J value) {
  std::vector<std::string> documents;
  for (J element : value)
    documents.push_back(element.is_object() ? element["text"] : element);
  return documents;
}

/// The members of `stream_options`; others are an error of their own.
static void storeStreamOptions(P &to, J value) {
  for (const auto &[key, member] : value.items()) {
    if (member.is_null())
      continue;
    const std::string name = "stream_options." + key;
    bool *const flag = key == "include_usage"            ? &to.includeUsage
                       : key == "continuous_usage_stats" ? &to.continuousUsage
                                                         : nullptr;
    if (!flag)
      throw ApiError(400, "unknown parameter " + name, name);
    if (!member.is_boolean())
      throw ApiError(400, name + " must be a boolean", name);
    *flag = member.get<bool>();
  }
  to.hasStreamOptions = true;
}

static void requireOneOf(const std::string &name, J value,
                         std::initializer_list<const char *> words) {
  std::string list;
  for (const char *word : words)
    if (value == word)
      return;
    else
      list += (list.empty() ? "" : ", ") + std::string(word);
  throw ApiError(400, name + " must be one of " + list, name);
}

static constexpr uint8_t kChat = kChatParameters;
static constexpr uint8_t kText = kCompletionParameters;
static constexpr uint8_t kBoth = kChat | kText;
static constexpr uint8_t kAll = kBoth | kTokenizeParameters |
                                kDetokenizeParameters | kEmbeddingParameters |
                                kRerankParameters;
static constexpr double kMost = std::numeric_limits<int32_t>::max();
/// Integers up to here are exact in JSON.
static constexpr double kMostSeed = 9007199254740991;

static constexpr std::array kTable = std::to_array<Parameter>({
    {"model", Kind::String, kAll, "The name that /v1/models lists", 0, 0,
     [](P &to, J value) { to.model = value; }},
    {"messages", Kind::Messages, kChat, "The conversation", 0, 0,
     [](P &to, J value) { to.messages = value; }},
    {"prompt", Kind::Prompts, kText, "Texts or lists of token ids", 0, 0,
     [](P &to, J value) { to.prompts = promptsOf(value); }},
    {"input", Kind::Prompts, kEmbeddingParameters,
     "Texts or lists of token ids", 0, 0,
     [](P &to, J value) { to.prompts = promptsOf(value); }},
    {"encoding_format", Kind::String, kEmbeddingParameters, "float or base64",
     0, 0,
     [](P &to, J value) {
       requireOneOf("encoding_format", value, {"float", "base64"});
       to.base64 = value == "base64";
     }},
    {"dimensions", Kind::Integer, kEmbeddingParameters,
     "Number of first values of a vector that are kept", 1, kMost,
     [](P &to, J value) { to.dimensions = value; }},
    {"query", Kind::String, kRerankParameters, "What documents should answer",
     0, 0, [](P &to, J value) { to.query = value; }},
    {"documents", Kind::Documents, kRerankParameters,
     "Texts, or objects with a text", 0, 0,
     [](P &to, J value) { to.documents = documentsOf(value); }},
    {"instruction", Kind::String, kRerankParameters,
     "What to look for; default is Qwen3-Reranker's", 0, 0,
     [](P &to, J value) { to.instruction = value; }},
    {"top_n", Kind::Integer, kRerankParameters,
     "Maximum number of results, the best first", 1, kMost,
     [](P &to, J value) { to.topCount = value; }},
    {"return_documents", Kind::Boolean, kRerankParameters,
     "The results have their documents", 0, 0,
     [](P &to, J value) { to.returnDocuments = value; }},
    {"max_tokens", Kind::Integer, kBoth,
     "Maximum number of tokens of an answer; default is 16 for a completion "
     "and the rest of the context for a chat",
     0, kMost, [](P &to, J value) { to.maxTokens = value; }},
    {"max_completion_tokens", Kind::Integer, kChat, "The same as max_tokens", 0,
     kMost, [](P &to, J value) { to.maxTokens = value; }},
    {"n_predict", Kind::Integer, kBoth, "The same as max_tokens", 0, kMost,
     [](P &to, J value) { to.maxTokens = value; }},
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  {#Name,                                                                      \
   std::is_integral_v<Type> ? Kind::Integer : Kind::Number,                    \
   kBoth,                                                                      \
   Help,                                                                       \
   Least,                                                                      \
   Most,                                                                       \
   [](P &to, J value) { to.sampling.Field = value; }},
#include "engine/SamplerOptions.def"
    {"logit_bias", Kind::Biases, kBoth,
     "Numbers that are added to the logits of tokens, by token id", -100, 100,
     [](P &to, J value) {
       for (const auto &[id, bias] : value.items())
         to.sampling.logitBias.push_back({std::stoi(id), bias.get<float>()});
     }},
    {"repeat_penalty", Kind::Number, kBoth, "The same as repetition_penalty",
     0.01, 100, [](P &to, J value) { to.sampling.repetitionPenalty = value; }},
    {"seed", Kind::Integer, kBoth,
     "Seed of the random numbers; a random one is drawn, and returned as "
     "x_seed, by default",
     0, kMostSeed, [](P &to, J value) { to.seed = value; }},
    {"n", Kind::Integer, kBoth, "Number of choices for each prompt", 1, 64,
     [](P &to, J value) { to.choices = value; }},
    {"stop", Kind::Strings, kBoth, "Texts that end an answer", 0, 0,
     [](P &to, J value) { to.stop = stringsOf(value); }},
    {"stop_token_ids", Kind::Ids, kBoth, "Tokens that end an answer", 0, 0,
     [](P &to, J value) {
       to.stopTokens = value.get<std::vector<int32_t>>();
     }},
    {"ignore_eos", Kind::Boolean, kBoth,
     "Continue past the model's tokens that end an answer", 0, 0,
     [](P &to, J value) { to.ignoreEos = value; }},
    {"include_stop_str_in_output", Kind::Boolean, kBoth,
     "The stop string belongs to the text", 0, 0,
     [](P &to, J value) { to.includeStop = value; }},
    {"skip_special_tokens", Kind::Boolean, kBoth,
     "Special tokens are not part of the text", 0, 0,
     [](P &to, J value) { to.skipSpecial = value; }},
    {"echo", Kind::Boolean, kText, "The prompt is part of the text", 0, 0,
     [](P &to, J value) { to.echo = value; }},
    {"logprobs", Kind::Integer, kText,
     "Logs of probabilities, from the raw logits, of each token and of this "
     "many most likely tokens",
     0, 20,
     [](P &to, J value) {
       to.logprobs = true;
       to.topLogprobs = value;
     }},
    {"logprobs", Kind::Boolean, kChat,
     "Logs of probabilities, from the raw logits, of each token", 0, 0,
     [](P &to, J value) { to.logprobs = value; }},
    {"top_logprobs", Kind::Integer, kChat,
     "Number of most likely tokens in logprobs", 0, 20,
     [](P &to, J value) { to.topLogprobs = value; }},
    {"return_tokens_as_token_ids", Kind::Boolean, kBoth,
     "Logprobs name tokens as token_id:N", 0, 0,
     [](P &to, J value) { to.tokensAsIds = value; }},
    {"return_token_ids", Kind::Boolean, kBoth,
     "Return the ids of prompt and answer", 0, 0,
     [](P &to, J value) { to.returnTokenIds = value; }},
    {"truncate_prompt_tokens", Kind::Integer, kBoth,
     "Keep this many last tokens of the prompt", 1, kMost,
     [](P &to, J value) { to.truncatePrompt = value; }},
    {"stream", Kind::Boolean, kBoth, "Send the answer while it is written", 0,
     0, [](P &to, J value) { to.stream = value; }},
    {"stream_options", Kind::Object, kBoth,
     "include_usage and continuous_usage_stats, booleans", 0, 0,
     storeStreamOptions},
    {"return_progress", Kind::Boolean, kBoth,
     "A stream reports how much of the prompt has run", 0, 0,
     [](P &to, J value) { to.returnProgress = value; }},
    {"add_generation_prompt", Kind::Boolean, kChat,
     "The chat template begins the answer", 0, 0,
     [](P &to, J value) { to.addGenerationPrompt = value; }},
    {"continue_final_message", Kind::Boolean, kChat,
     "The answer continues the last message", 0, 0,
     [](P &to, J value) { to.continueFinalMessage = value; }},
    {"chat_template_kwargs", Kind::Object, kChat,
     "Further variables of the chat template, such as enable_thinking", 0, 0,
     [](P &to, J value) { to.templateVariables = value; }},
    {"reasoning_effort", Kind::String, kChat,
     "none sets enable_thinking of the chat template to false; other words "
     "have no effect",
     0, 0, [](P &to, J value) { to.noThinking = value == "none"; }},
    {"reasoning_format", Kind::String, kChat,
     "none leaves the reasoning in the content; auto and deepseek return it as "
     "reasoning_content and as reasoning",
     0, 0,
     [](P &to, J value) {
       requireOneOf("reasoning_format", value, {"none", "auto", "deepseek"});
       to.splitReasoning = value != "none";
     }},
    {"thinking_token_budget", Kind::Integer, kChat,
     "Maximum number of tokens of the reasoning, which ends then", 0, kMost,
     [](P &to, J value) { to.thinkingBudget = value; }},
    {"thinking_budget", Kind::Integer, kChat,
     "The same as thinking_token_budget", 0, kMost,
     [](P &to, J value) { to.thinkingBudget = value; }},
    {"cache_salt", Kind::String, kBoth,
     "Only requests with the same text share the prefix cache", 0, 0,
     [](P &to, J value) { to.cacheSalt = value; }},
    {"priority", Kind::Integer, kBoth,
     "Requests with a higher priority run first", -1000, 1000,
     [](P &to, J value) { to.priority = value; }},

    {"prompt", Kind::String, kTokenizeParameters, "A text", 0, 0,
     [](P &to, J value) { to.prompts = {value.get<std::string>()}; }},
    {"content", Kind::String, kTokenizeParameters, "The same as prompt", 0, 0,
     [](P &to, J value) { to.prompts = {value.get<std::string>()}; }},
    {"tokens", Kind::Ids, kDetokenizeParameters, "Token ids", 0, 0,
     [](P &to, J value) { to.tokens = value.get<std::vector<int32_t>>(); }},

    // Only texts that are embedded get a token.
    {"add_special_tokens", Kind::Ignored, kBoth | kTokenizeParameters, ""},
    {"user", Kind::Ignored, kAll, ""},
    {"metadata", Kind::Ignored, kBoth, ""},
    {"store", Kind::Ignored, kBoth, ""},
    {"service_tier", Kind::Ignored, kBoth, ""},
    {"prompt_cache_key", Kind::Ignored, kBoth, ""},
    {"safety_identifier", Kind::Ignored, kBoth, ""},
    {"cache_prompt", Kind::Ignored, kBoth, ""},
    {"parallel_tool_calls", Kind::Ignored, kChat, ""},

    // Without mirostat, these two have no effect.
    {"mirostat_eta", Kind::Ignored, kBoth, ""},
    {"mirostat_tau", Kind::Ignored, kBoth, ""},

    {"mirostat", Kind::Neutral, kBoth, "", 0, 0, nullptr, "0"},
    {"tfs_z", Kind::Neutral, kBoth, "", 0, 0, nullptr, "1"},
    // The repetition penalty is for all tokens already seen.
    {"repeat_last_n", Kind::Neutral, kBoth, "", 0, 0, nullptr, "-1"},
    {"best_of", Kind::Neutral, kText, "", 0, 0, nullptr, "1"},
    {"suffix", Kind::Neutral, kText, "", 0, 0, nullptr, "\"\""},
    {"response_format", Kind::Neutral, kBoth, "", 0, 0, nullptr,
     R"({"type":"text"})"},
    {"tools", Kind::Neutral, kChat, "", 0, 0, nullptr, "[]"},
    {"tool_choice", Kind::Neutral, kChat, "", 0, 0, nullptr, "\"none\""},
    {"modalities", Kind::Neutral, kChat, "", 0, 0, nullptr, R"(["text"])"},
});

std::span<const Parameter> server::parameterTable() { return kTable; }

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
  void biases(J value, const Parameter &row) const;
  void strings(J value) const;
  void prompts(J value) const;
  void documents(J value) const;
  void number(J value, const Parameter &row) const;
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
  if (std::ssize(value) > limits.prompts)
    fail("at most " + std::to_string(limits.prompts) + " prompts, not " +
         std::to_string(value.size()));
  for (J element : value)
    if (element.is_array() && !element.empty())
      ids(element);
    else if (!element.is_string())
      fail(needed);
}

void Checked::documents(J value) const {
  if (!value.is_array() || value.empty())
    fail("an array of texts, not empty");
  if (std::ssize(value) > limits.prompts)
    fail("at most " + std::to_string(limits.prompts) + " documents, not " +
         std::to_string(value.size()));
  for (J element : value)
    if (!element.is_string() &&
        !(element.is_object() && element.contains("text") &&
          element["text"].is_string()))
      fail("an array of texts, or of objects with a text");
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// The text of a message's content: a string, or parts of type "text".
static std::string contentText(J content, const std::string &name) {
  if (content.is_string())
    return content;
  if (!content.is_array())
    throw ApiError(400, name + " must be a string or an array of text parts",
                   name);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    J part = content[i];
    if (!part.is_object() || part.value("type", ordered_json()) != "text" ||
        !part.contains("text") || !part["text"].is_string())
      throw ApiError(400,
                     name + "[" + std::to_string(i) +
                         "] must be {\"type\": \"text\", \"text\": ...}: the "
                         "model reads text only",
                     name);
    text += part["text"].get_ref<const std::string &>();
  }
  return text;
}

/// A message as the chat template reads it.
static ordered_json messageOf(J value, const std::string &name,
                              bool ignoreUnknown) {
  constexpr std::array kStrings = {"name", "reasoning_content"};
  constexpr std::array kIgnored = {"refusal", "annotations", "audio", "id"};
  if (!value.is_object() || !value.contains("role") ||
      !value["role"].is_string())
    throw ApiError(400, name + " must be an object with a role", name);
  ordered_json message = {{"role", value["role"]}, {"content", ""}};
  for (const auto &[key, member] : value.items()) {
    const std::string inner = name + "." + printable(key);
    if (key == "role" || member.is_null() || std::ranges::count(kIgnored, key))
      continue;
    if (key == "content") {
      message["content"] = contentText(member, inner);
    } else if (std::ranges::count(kStrings, key) || key == "reasoning") {
      if (!member.is_string())
        throw ApiError(400, inner + " must be a string", inner);
      message[key == "reasoning" ? "reasoning_content" : key] = member;
    } else if (!ignoreUnknown) {
      throw ApiError(400, "unknown parameter " + inner, inner);
    }
  }
  return message;
}

static ordered_json messagesOf(J value, const std::string &name,
                               bool ignoreUnknown) {
  if (!value.is_array() || value.empty())
    throw ApiError(400, name + " must be an array of messages, not empty",
                   name);
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i < value.size(); ++i)
    messages.push_back(messageOf(value[i], name + "[" + std::to_string(i) + "]",
                                 ignoreUnknown));
  return messages;
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
  for (const auto &[key, value] : body.items()) {
    const auto row = std::ranges::find_if(kTable, [&](const Parameter &each) {
      return each.name == key && (each.sets & set);
    });
    const std::string name = printable(key.substr(0, 200));
    if (row != kTable.end() && !value.is_null())
      storeParameter(*row, value, name, limits, to);
    else if (row == kTable.end() && !limits.ignoreUnknown)
      throw ApiError(400, "unknown parameter " + name, name,
                     "unknown_parameter");
  }
  // -1 keeps all tokens, as 0 does.
  to.sampling.topK = std::max<int64_t>(to.sampling.topK, 0);
  checkTogether(set, body, to);
}
