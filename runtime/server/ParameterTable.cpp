//===- ParameterTable.cpp - The table of parameters -----------------------===//

#include "server/Parameters.h"

#include <array>
#include <limits>

using namespace qwen;
using namespace qwen::server;
using namespace qwen::server::table;
using nlohmann::ordered_json;

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

/// -1 is "no limit", as in llama-server.
static int64_t limitOf(J value) {
  const auto limit = value.get<int64_t>();
  return limit < 0 ? std::numeric_limits<int64_t>::max() : limit;
}

static void storeBudget(P &to, J value) {
  const int64_t budget = limitOf(value);
  to.thinkingBudget = budget == std::numeric_limits<int64_t>::max()
                          ? std::nullopt
                          : std::optional(budget);
}

/// -1 stands for a random seed, as in llama-server. Others below 0 are the same
/// as unsigned ones with the same bits.
static std::optional<uint64_t> seedOf(J value) {
  if (value.is_number_unsigned())
    return value.get<uint64_t>();
  const auto seed = value.get<int64_t>();
  return seed == -1 ? std::nullopt : std::optional(static_cast<uint64_t>(seed));
}

static constexpr uint8_t kChat = kChatParameters;
static constexpr uint8_t kText = kCompletionParameters;
static constexpr uint8_t kBoth = kChat | kText;
static constexpr uint8_t kAll = kBoth | kTokenizeParameters |
                                kDetokenizeParameters | kEmbeddingParameters |
                                kRerankParameters;
static constexpr double kMost = std::numeric_limits<int32_t>::max();

static constexpr std::array kTable = std::to_array<Parameter>({
    {"model", Kind::Model, kAll, "The name that /v1/models lists", 0, 0,
     [](P &to, J value) { to.model = value; }},
    {"messages", Kind::Messages, kChat, "The conversation", 0, 0,
     [](P &to, J value) { to.messages = value; }, "[]", kRequired},
    {"prompt", Kind::Prompts, kText, "Texts or lists of token ids", 0, 0,
     storePrompts, "[]", kRequired},
    {"input", Kind::Prompts, kEmbeddingParameters,
     "Texts or lists of token ids", 0, 0, storePrompts, "[]", kRequired},
    {"encoding_format", Kind::Word, kEmbeddingParameters, "The form of a vector",
     0, 0, [](P &to, J value) { to.base64 = value == "base64"; },
     R"(["float", "base64"])"},
    {"dimensions", Kind::Integer, kEmbeddingParameters,
     "Number of first values of a vector that are kept", 1, kMost,
     [](P &to, J value) { to.dimensions = value; }, "[]", 0, &ParameterLimits::dimensions},
    {"query", Kind::String, kRerankParameters, "What documents should answer",
     0, 0, [](P &to, J value) { to.query = value; }, "[]", kRequired},
    {"documents", Kind::Documents, kRerankParameters,
     "Texts, or objects with a text", 0, 0,
     [](P &to, J value) { to.documents = documentsOf(value); }, "[]", kRequired},
    {"instruction", Kind::String, kRerankParameters,
     "What to look for; default is Qwen3-Reranker's", 0, 0,
     [](P &to, J value) { to.instruction = value; }},
    {"top_n", Kind::Integer, kRerankParameters,
     "Maximum number of results, the best first", 1, kMost,
     [](P &to, J value) { to.topCount = value; }},
    {"return_documents", Kind::Boolean, kRerankParameters,
     "The results have their documents", 0, 0,
     [](P &to, J value) { to.returnDocuments = value; }},
    {"n_predict", Kind::Integer, kBoth, "The same as max_tokens", -1, kMost,
     [](P &to, J value) { to.maxTokens = limitOf(value); }},
    {"max_tokens", Kind::Integer, kBoth,
     "Maximum number of tokens of an answer; -1: the rest of the context; "
     "default is 16 for a completion and -1 for a chat",
     -1, kMost, [](P &to, J value) { to.maxTokens = limitOf(value); }},
    {"max_completion_tokens", Kind::Integer, kChat, "The same as max_tokens", -1,
     kMost, [](P &to, J value) { to.maxTokens = limitOf(value); }},
    {"repeat_penalty", Kind::Number, kBoth, "The same as repetition_penalty",
     0.01, 100, [](P &to, J value) { to.sampling.repetitionPenalty = value; }},
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  {#Name,                                                                      \
   std::is_integral_v<Type> ? Kind::Integer : Kind::Number,                    \
   kBoth,                                                                      \
   Help,                                                                       \
   Least,                                                                      \
   Most,                                                                       \
   [](P &to, J value) { to.sampling.Field = value; }},
#include "qwen/ABI/SamplerOptions.def"
    {"logit_bias", Kind::Biases, kBoth,
     "Numbers that are added to the logits of tokens, by token id", -100, 100,
     [](P &to, J value) {
       for (const auto &[id, bias] : value.items())
         to.sampling.logitBias.push_back({std::stoi(id), bias.get<float>()});
     }},
    {"seed", Kind::Seed, kBoth,
     "Seed of the random numbers; by default, and for -1, a random one is "
     "drawn, and returned as x_seed",
     0, 0, [](P &to, J value) { to.seed = seedOf(value); }},
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
    {"stream_options", Kind::StreamOptions, kBoth, "What a stream has", 0, 0},
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
    {"reasoning_format", Kind::Word, kChat,
     "none leaves the reasoning in the content; auto and deepseek return it as "
     "reasoning_content and as reasoning",
     0, 0, [](P &to, J value) { to.splitReasoning = value != "none"; },
     R"(["none", "auto", "deepseek"])"},
    {"thinking_budget", Kind::Integer, kChat,
     "The same as thinking_token_budget", -1, kMost, storeBudget, "[]",
     kOfThinking},
    {"thinking_budget_tokens", Kind::Integer, kChat,
     "The same as thinking_token_budget", -1, kMost, storeBudget, "[]",
     kOfThinking},
    {"thinking_token_budget", Kind::Integer, kChat,
     "Maximum number of tokens of the reasoning, which ends then; -1: no limit",
     -1, kMost, storeBudget, "[]", kOfThinking},
    {"cache_salt", Kind::String, kBoth,
     "Only requests with the same text share the prefix cache", 1, 0,
     [](P &to, J value) { to.cacheSalt = value; }},
    {"priority", Kind::Integer, kBoth,
     "Requests with a higher priority run first", -1000, 1000,
     [](P &to, J value) { to.priority = value; }},

    {"content", Kind::String, kTokenizeParameters, "The same as prompt", 0, 0,
     [](P &to, J value) { to.prompts = {value.get<std::string>()}; }},
    {"prompt", Kind::String, kTokenizeParameters, "A text", 0, 0,
     [](P &to, J value) { to.prompts = {value.get<std::string>()}; }},
    {"add_special_tokens", Kind::Boolean, kTokenizeParameters,
     "The same as add_special", 0, 0,
     [](P &to, J value) { to.addSpecial = value; }},
    {"add_special", Kind::Boolean, kTokenizeParameters,
     "Append the token that the model wants after a text that is embedded", 0,
     0, [](P &to, J value) { to.addSpecial = value; }},
    {"parse_special", Kind::Boolean, kTokenizeParameters,
     "Special tokens in the text are tokens; default is true", 0, 0,
     [](P &to, J value) { to.parseSpecial = value; }},
    {"with_pieces", Kind::Boolean, kTokenizeParameters,
     "Each token is an object with its id and its piece of the text", 0, 0,
     [](P &to, J value) { to.withPieces = value; }},
    {"tokens", Kind::Ids, kDetokenizeParameters, "Token ids", 0, 0,
     [](P &to, J value) { to.tokens = value.get<std::vector<int32_t>>(); },
     "[]", kRequired},

    // Only texts that are embedded get a token.
    {"add_special_tokens", Kind::Ignored, kBoth, ""},
    {"user", Kind::Ignored, kAll, ""},
    {"metadata", Kind::Ignored, kBoth, ""},
    {"store", Kind::Ignored, kBoth, ""},
    {"service_tier", Kind::Ignored, kBoth, ""},
    {"prompt_cache_key", Kind::Ignored, kBoth, ""},
    {"prompt_cache_options", Kind::Ignored, kBoth, ""},
    {"prompt_cache_retention", Kind::Ignored, kBoth, ""},
    {"safety_identifier", Kind::Ignored, kBoth, ""},
    {"cache_prompt", Kind::Ignored, kBoth, ""},
    {"parallel_tool_calls", Kind::Ignored, kChat, ""},
    // What the answer may be like, only to make it faster.
    {"prediction", Kind::Ignored, kChat, ""},

    // Without mirostat, these two have no effect.
    {"mirostat_eta", Kind::Ignored, kBoth, ""},
    {"mirostat_tau", Kind::Ignored, kBoth, ""},

    {"mirostat", Kind::Neutral, kBoth, "", 0, 0, nullptr, "[0]"},
    {"tfs_z", Kind::Neutral, kBoth, "", 0, 0, nullptr, "[1]"},
    // The repetition penalty is for all tokens already seen.
    {"repeat_last_n", Kind::Neutral, kBoth, "", 0, 0, nullptr, "[-1]"},
    {"best_of", Kind::Neutral, kText, "", 0, 0, nullptr, "[1]"},
    {"suffix", Kind::Neutral, kText, "", 0, 0, nullptr, R"([""])"},
    {"response_format", Kind::Neutral, kBoth, "", 0, 0, nullptr,
     R"([{"type":"text"}])"},
    {"tools", Kind::Neutral, kChat, "", 0, 0, nullptr, "[[]]"},
    {"tool_choice", Kind::Neutral, kChat, "", 0, 0, nullptr, R"(["none"])"},
    {"functions", Kind::Neutral, kChat, "", 0, 0, nullptr, "[[]]"},
    {"function_call", Kind::Neutral, kChat, "", 0, 0, nullptr, R"(["none"])"},
    {"modalities", Kind::Neutral, kChat, "", 0, 0, nullptr, R"([["text"]])"},
    {"verbosity", Kind::Neutral, kChat, "", 0, 0, nullptr, R"(["medium"])"},
    {"audio", Kind::Neutral, kChat, ""},
    {"moderation", Kind::Neutral, kChat, ""},
    {"web_search_options", Kind::Neutral, kChat, ""},
});

std::span<const Parameter> server::parameterTable() { return kTable; }

static constexpr std::array kStreamOptions = std::to_array<StreamOption>({
    {"include_usage", "The last chunk has the usage", &P::includeUsage},
    {"continuous_usage_stats", "Each chunk has the usage so far",
     &P::continuousUsage},
    {"include_obfuscation", "Accepted without effect", nullptr},
});

std::span<const StreamOption> server::streamOptions() { return kStreamOptions; }

bool server::hasParameter(J body, std::string_view name) {
  const auto found = body.find(name);
  return found != body.end() && !found->is_null();
}

static constexpr std::array kRules = std::to_array<ParameterRule>({
    {kTokenizeParameters, "prompt", "is missing",
     [](J, const P &values) { return !values.prompts.empty(); },
     R"({"anyOf": [
       {"required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
       {"required": ["content"], "properties": {"content": {"type": "string"}}}
     ]})"},
    {kChat, "top_logprobs", "needs logprobs",
     [](J, const P &values) {
       return values.logprobs || values.topLogprobs == 0;
     },
     R"({"anyOf": [
       {"properties": {"top_logprobs": {"enum": [0, null]}}},
       {"required": ["logprobs"], "properties": {"logprobs": {"const": true}}}
     ]})"},
    {kChat, "continue_final_message", "excludes add_generation_prompt",
     [](J body, const P &values) {
       return !values.continueFinalMessage || !values.addGenerationPrompt ||
              !hasParameter(body, "add_generation_prompt");
     },
     R"({"anyOf": [
       {"properties": {"continue_final_message": {"enum": [false, null]}}},
       {"properties": {"add_generation_prompt": {"enum": [false, null]}}}
     ]})"},
    {kBoth, "stream_options", "needs stream",
     [](J body, const P &values) {
       return values.stream || !hasParameter(body, "stream_options");
     },
     R"({"anyOf": [
       {"properties": {"stream_options": {"type": "null"}}},
       {"required": ["stream"], "properties": {"stream": {"const": true}}}
     ]})"},
});

std::span<const ParameterRule> server::parameterRules() { return kRules; }
