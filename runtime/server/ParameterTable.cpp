//===- ParameterTable.cpp - The table of parameters -----------------------===//

#include "server/Parameters.h"

#include "server/ApiError.h"

#include <array>
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

static void storePrompts(P &to, J value) {
  const auto add = [&](J prompt) {
    if (prompt.is_string())
      to.prompts.emplace_back(prompt.get<std::string>());
    else
      to.prompts.emplace_back(prompt.get<std::vector<int32_t>>());
  };
  to.hasPromptList = value.is_array() && !value.front().is_number();
  if (!to.hasPromptList)
    return add(value);
  for (J element : value)
    add(element);
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
     storePrompts},
    {"input", Kind::Prompts, kEmbeddingParameters,
     "Texts or lists of token ids", 0, 0, storePrompts},
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
    {"n", Kind::Integer, kBoth, "Number of choices for each prompt", 1,
     kMostChoices, [](P &to, J value) { to.choices = value; }},
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
