//===- AnswerParameters.cpp - Parameters that protocols share -------------===//

#include "server/AnswerParameters.h"

#include <algorithm>
#include <array>
#include <charconv>

using namespace qwen;
using namespace qwen::server;

using J = const nlohmann::ordered_json &;
using Kind = ParameterKind;
using Sampling = SamplingParameters;
using Search = BeamParameters;
using Stop = StopParameters;
using Tokens = TokenParameters;
using Stream = StreamParameters;
using Requests = RequestParameters;
using Reasoning = ReasoningParameters;

void PromptParameters::setPrompts(J value) {
  const auto isNumber = [](J element) { return element.is_number(); };
  const auto add = [&](J prompt) {
    if (prompt.is_string()) {
      prompts.emplace_back(prompt.get<std::string>());
    } else if (prompt.is_object()) {
      prompts.emplace_back(prompt.begin()->get<std::string>());
    } else if (std::ranges::all_of(prompt, isNumber)) {
      prompts.emplace_back(prompt.get<std::vector<int32_t>>());
    } else {
      MixedPrompt mixed;
      for (J part : prompt)
        if (part.is_string())
          mixed.emplace_back(part.get<std::string>());
        else
          mixed.emplace_back(part.get<int32_t>());
      prompts.emplace_back(std::move(mixed));
    }
  };
  hasPromptList = value.is_array() && std::ranges::none_of(value, isNumber);
  if (!hasPromptList)
    return add(value);
  for (J element : value)
    add(element);
}

/// -1 is "no limit", as in llama-server.
void SamplingParameters::setLimit(J value) {
  const auto limit = value.get<int64_t>();
  maxTokens = limit < 0 ? std::numeric_limits<int64_t>::max() : limit;
}

/// -1 stands for a random seed, as in llama-server. Others below 0 are the same
/// as unsigned ones with the same bits.
void SamplingParameters::setSeed(J value) {
  if (value.is_number_unsigned())
    seed = value.get<uint64_t>();
  else if (value.get<int64_t>() == -1)
    seed.reset();
  else
    seed = static_cast<uint64_t>(value.get<int64_t>());
}

void SamplingParameters::setBiases(J value) {
  for (const auto &[id, bias] : value.items())
    sampling.logitBias.push_back({std::stoi(id), bias.get<float>()});
}

void SamplingParameters::setPreset(J value) {
  samplerPreset(value.get<std::string>()).apply(sampling);
}

/// A string, or an array of strings.
static std::vector<std::string> stringsOf(J value) {
  if (value.is_string())
    return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

void SamplingParameters::setBadWords(J value) {
  sampling.texts.badWords = stringsOf(value);
}

void SamplingParameters::setBreakers(J value) {
  sampling.texts.dryBreakers = stringsOf(value);
}

void SamplingParameters::setSamplers(J value) {
  sampling.samplers = parseSamplers(stringsOf(value));
}

/// As the shortest text that reads back as the number.
template <typename T> static nlohmann::ordered_json shortest(T value) {
  std::array<char, 64> text = {};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return nlohmann::ordered_json::parse(text.data(), end);
}

nlohmann::ordered_json server::describeSampling(const SamplerOptions &options) {
  nlohmann::ordered_json object;
#define QWEN_SAMPLING(Type, Field, Name, ...)                                  \
  object[#Name] = shortest(options.Field);
#include "qwen/ABI/SamplerOptions.def"
  object["bad_words"] = options.texts.badWords;
  object["dry_sequence_breakers"] = options.texts.breakers();
  const std::span<const std::string_view> names = samplerNames();
  nlohmann::ordered_json samplers = names;
  if (options.samplers) {
    samplers = nlohmann::ordered_json::array();
    for (SamplerKind kind : *options.samplers)
      samplers.push_back(names[static_cast<size_t>(kind)]);
  }
  object["samplers"] = samplers;
  return object;
}

/// Stores an option of the sampler, as one that it takes.
template <auto Option> static void setOption(void *group, J value) {
  constexpr double kLeastShare = 1e-9;
  SamplerOptions &to = static_cast<Sampling *>(group)->sampling;
  to.*Option = value.get<std::remove_reference_t<decltype(to.*Option)>>();
  // -1 keeps all tokens, as 0 does.
  to.topK = std::max<int64_t>(to.topK, 0);
  // 0 is the least, which keeps one token.
  to.topP = std::max(to.topP, kLeastShare);
  to.typicalP = std::max(to.typicalP, kLeastShare);
}

void BeamParameters::setEarlyStopping(J value) {
  const std::string word =
      value.is_string() ? value.get<std::string>() : value.dump();
  beams.earlyStopping =
      static_cast<EarlyStopping>(std::ranges::find(kEarlyStoppingWords, word) -
                                 kEarlyStoppingWords.begin());
}

template <auto Option> static void setBeamOption(void *group, J value) {
  BeamOptions &to = static_cast<Search *>(group)->beams;
  to.*Option = value.get<std::remove_reference_t<decltype(to.*Option)>>();
}

void StopParameters::setStop(J value) { stop = stringsOf(value); }

void ReasoningParameters::setFormat(J value) {
  splitReasoning = value != "none";
}

void ReasoningParameters::setBudget(J value) {
  thinkingBudget = value.get<int64_t>();
  if (*thinkingBudget < 0)
    thinkingBudget.reset();
}

static constexpr double kMost = std::numeric_limits<int32_t>::max();

// clang-format off
static constexpr Parameter kModelRows[] = {
    {"model", Kind::Model, "The name that /v1/models lists"},
    {"user", Kind::Ignored},
};

/// A JSON array of a text that ends in a comma, which becomes a bracket.
template <size_t N>
static constexpr std::array<char, N> toJsonArray(const char (&text)[N]) {
  std::array<char, N> array = std::to_array(text);
  array[N - 2] = ']';
  return array;
}

static constexpr auto kPresetNames = toJsonArray("["
#define QWEN_PRESET(Name, Help) "\"" #Name "\","
#include "qwen/ABI/SamplerPresets.def"
);

static constexpr auto kSamplerNames = toJsonArray("["
#define QWEN_LOGITS(Name, Text) "\"" #Text "\","
#define QWEN_CUT(Name, Text) "\"" #Text "\","
#include "engine/samplers/Samplers.def"
);

static constexpr Parameter kSamplingRows[] = {
    {"n_predict", Kind::Integer, "The same as max_tokens", at<Sampling, &Sampling::setLimit>, -1, kMost},
    {"max_tokens", Kind::Integer,
     "Maximum number of tokens of an answer; -1: the rest of the context; default is 16 for a completion and -1 for a chat",
     at<Sampling, &Sampling::setLimit>, -1, kMost},
    {"preset", Kind::Word, "The same as the settings of this name in x-presets; others of the request replace them",
     at<Sampling, &Sampling::setPreset>, 0, 0, kPresetNames.data()},
    {"repeat_penalty", Kind::Number, "The same as repetition_penalty", setOption<&SamplerOptions::repetitionPenalty>, 0.01, 100},
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed, Help)                                          \
    {#Name, std::is_integral_v<Type> ? Kind::Integer : Kind::Number, Help, setOption<&SamplerOptions::Field>, Least, Most,   \
     "[]", 0, nullptr, nullptr, {}, "sampling"},
#include "qwen/ABI/SamplerOptions.def"
    {"logit_bias", Kind::Biases, "Numbers that are added to the logits of tokens, by token id",
     at<Sampling, &Sampling::setBiases>, -100, 100},
    {.name = "bad_words", .kind = Kind::Strings, .help = "Texts that the answer must not contain",
     .store = at<Sampling, &Sampling::setBadWords>, .most = 1024, .group = "sampling"},
    {.name = "dry_sequence_breakers", .kind = Kind::Strings, .help = "Texts that DRY does not look past",
     .store = at<Sampling, &Sampling::setBreakers>, .group = "sampling"},
    {.name = "samplers", .kind = Kind::Words, .help = "Samplers in their order; others are off",
     .store = at<Sampling, &Sampling::setSamplers>, .values = kSamplerNames.data(), .group = "sampling"},
    {"seed", Kind::Seed,
     "Seed of the random numbers; by default, and for -1, a random one is drawn, and returned as x_seed",
     at<Sampling, &Sampling::setSeed>},
    {"num_return_sequences", Kind::Integer, "The same as n", at<Sampling, &Sampling::choices>, 1, kMostChoices},
    {"n", Kind::Integer, "Number of choices for each prompt; of a beam search, the best", at<Sampling, &Sampling::choices>, 1, kMostChoices},
    {"tfs_z", Kind::Neutral, "", nullptr, 0, 0, "[1]"},
    // The repetition penalty is for all tokens already seen.
    {"repeat_last_n", Kind::Neutral, "", nullptr, 0, 0, "[-1]"},
};

/// Each beam has a sequence.
static constexpr int64_t ParameterLimits::*boundOf(std::string_view name) {
  return name == "num_beams" ? &ParameterLimits::sequences : nullptr;
}

static constexpr Parameter kBeamRows[] = {
#define QWEN_BEAM_OPTION(Type, Field, Name, Default, Least, Most, Help)                                                      \
    {.name = #Name, .kind = std::is_integral_v<Type> ? Kind::Integer : Kind::Number, .help = (Help),                           \
     .store = setBeamOption<&BeamOptions::Field>, .least = (Least), .most = (Most), .bound = boundOf(#Name),     \
     .group = "beams"},
#include "qwen/ABI/BeamOptions.def"
    {.name = "early_stopping", .kind = Kind::Word, .help =
     "When a beam search with as many answers as beams ends: at once (true), when no beam would be better now (false), or when none can become better (never)",
     .store = at<Search, &Search::setEarlyStopping>, .values = R"([false, true, "never"])", .group = "beams"},
};

static constexpr Parameter kStopRows[] = {
    {"stop", Kind::Strings, "Texts that end an answer; they do not count in its reasoning and its calls", at<Stop, &Stop::setStop>},
    {"stop_token_ids", Kind::Ids, "Tokens that end an answer, as stop does; special tokens do anywhere", at<Stop, &Stop::stopTokens>},
    {"ignore_eos", Kind::Boolean, "Continue past the model's tokens that end an answer", at<Stop, &Stop::ignoreEos>},
    {"include_stop_str_in_output", Kind::Boolean, "The stop string belongs to the text", at<Stop, &Stop::includeStop>},
    {"skip_special_tokens", Kind::Boolean, "Special tokens are not part of the text", at<Stop, &Stop::skipSpecial>},
};

static constexpr Parameter kTokenRows[] = {
    {"return_tokens_as_token_ids", Kind::Boolean, "Logprobs name tokens as token_id:N", at<Tokens, &Tokens::tokensAsIds>},
    {"return_token_ids", Kind::Boolean, "Return the ids of prompt and answer", at<Tokens, &Tokens::returnTokenIds>},
    {"verbose", Kind::Boolean, "Return the text of the prompt and the settings, as __verbose", at<Tokens, &Tokens::isVerbose>},
};

static constexpr Parameter kStreamOptions[] = {
    {"include_usage", Kind::Boolean, "The last chunk has the usage", at<Stream, &Stream::includeUsage>},
    {"continuous_usage_stats", Kind::Boolean, "Each chunk has the usage so far", at<Stream, &Stream::continuousUsage>},
    {"include_obfuscation", Kind::Boolean, "Accepted without effect"},
};

static constexpr Parameter kStreamRows[] = {
    {"stream", Kind::Boolean, "Send the answer while it is written", at<Stream, &Stream::stream>},
    {.name = "stream_options", .kind = Kind::Flags, .help = "What a stream has", .members = kStreamOptions},
    {"return_progress", Kind::Boolean, "A stream reports how much of the prompt has run", at<Stream, &Stream::returnProgress>},
};

static constexpr Parameter kRequestRows[] = {
    {"truncate_prompt_tokens", Kind::Integer, "Keep this many last tokens of the prompt",
     at<Requests, &Requests::truncatePrompt>, 1, kMost},
    {"cache_salt", Kind::String, "Only requests with the same text share the prefix cache", at<Requests, &Requests::cacheSalt>, 1, 1024},
    {"priority", Kind::Integer, "Requests with a higher priority run first", at<Requests, &Requests::priority>, -1000, 1000},
    // Only texts that are embedded get a token.
    {"add_special_tokens", Kind::Ignored},
    {"metadata", Kind::Ignored},
    {"store", Kind::Ignored},
    {"service_tier", Kind::Ignored},
    {"prompt_cache_key", Kind::Ignored},
    {"prompt_cache_options", Kind::Ignored},
    {"prompt_cache_retention", Kind::Ignored},
    {"safety_identifier", Kind::Ignored},
    {"cache_prompt", Kind::Ignored},
    // vLLM's router writes what SGLang's servers do without them.
    {"no_stop_trim", Kind::Neutral, "", nullptr, 0, 0, "[false]"},
    {"return_hidden_states", Kind::Neutral, "", nullptr, 0, 0, "[false]"},
};

static constexpr Parameter kEchoRows[] = {
    {"echo", Kind::Boolean, "The prompt is part of the text", at<EchoParameters, &EchoParameters::echo>},
};

static constexpr Parameter kReasoningRows[] = {
    // vLLM's router writes them: the reasoning is part of an answer, apart from
    // its content and streamed.
    {"include_reasoning", Kind::Neutral, "", nullptr, 0, 0, "[true]"},
    {"separate_reasoning", Kind::Neutral, "", nullptr, 0, 0, "[true]"},
    {"stream_reasoning", Kind::Neutral, "", nullptr, 0, 0, "[true]"},
    {"reasoning_format", Kind::Word,
     "none leaves the reasoning in the content; auto and deepseek return it as reasoning_content and as reasoning",
     at<Reasoning, &Reasoning::setFormat>, 0, 0, R"(["none", "auto", "deepseek"])"},
    {"thinking_budget", Kind::Integer, "The same as thinking_token_budget",
     at<Reasoning, &Reasoning::setBudget>, -1, kMost, "[]", kOfThinking},
    {"thinking_budget_tokens", Kind::Integer, "The same as thinking_token_budget",
     at<Reasoning, &Reasoning::setBudget>, -1, kMost, "[]", kOfThinking},
    {"thinking_token_budget", Kind::Integer, "Maximum number of tokens of the reasoning, which ends then; -1: no limit",
     at<Reasoning, &Reasoning::setBudget>, -1, kMost, "[]", kOfThinking},
    {"reasoning_budget_message", Kind::String, "The same as thinking_budget_message",
     at<Reasoning, &Reasoning::budgetMessage>, 0, 0, "[]", kOfThinking},
    {"thinking_budget_message", Kind::String,
     "Text that the reasoning ends with when its budget is used up; its tokens belong to the budget",
     at<Reasoning, &Reasoning::budgetMessage>, 0, 0, "[]", kOfThinking},
};
// clang-format on

static constexpr ParameterRule kStreamRules[] = {
    {"stream_options", "needs stream",
     [](J body, const void *group) {
       return static_cast<const Stream *>(group)->stream ||
              !hasParameter(body, "stream_options");
     },
     R"({"anyOf": [
       {"properties": {"stream_options": {"type": "null"}}},
       {"required": ["stream"], "properties": {"stream": {"const": true}}}
     ]})"},
};

const ParameterTable ModelParameters::table = {kModelRows};
const ParameterTable SamplingParameters::table = {kSamplingRows};
const ParameterTable BeamParameters::table = {kBeamRows};
const ParameterTable StopParameters::table = {kStopRows};
const ParameterTable TokenParameters::table = {kTokenRows};
const ParameterTable StreamParameters::table = {kStreamRows, kStreamRules};
const ParameterTable RequestParameters::table = {kRequestRows};
const ParameterTable EchoParameters::table = {kEchoRows};
const ParameterTable ReasoningParameters::table = {kReasoningRows};
