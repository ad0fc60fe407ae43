//===- AnswerParameters.h - Parameters that protocols share -----*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_ANSWERPARAMETERS_H
#define QWEN_RUNTIME_SERVER_ANSWERPARAMETERS_H

#include "engine/BeamSearch.h"
#include "engine/Sampler.h"
#include "server/GrammarParameters.h"

#include <variant>

namespace qwen::server {

/// The parameters of every request: the model, and who asks.
struct ModelParameters {
  static const ParameterTable table;
};

/// A prompt of texts and token ids.
using MixedPrompt = std::vector<std::variant<std::string, int32_t>>;
/// A prompt as a text, as token ids or as both.
using PromptValue =
    std::variant<std::string, std::vector<int32_t>, MixedPrompt>;

/// Each protocol has another name for prompts.
struct PromptParameters {
  std::vector<PromptValue> prompts;
  /// Whether the prompts came as a list, whose elements errors name.
  bool hasPromptList = false;

  void setPrompts(const nlohmann::ordered_json &value);
};

/// How tokens are drawn, and how many.
struct SamplingParameters {
  /// The default is the model's.
  SamplerOptions sampling = {};
  std::optional<uint64_t> seed;
  std::optional<int64_t> maxTokens;
  int64_t choices = 1;

  void setLimit(const nlohmann::ordered_json &value);
  void setSeed(const nlohmann::ordered_json &value);
  void setBiases(const nlohmann::ordered_json &value);
  void setPreset(const nlohmann::ordered_json &value);
  void setBadWords(const nlohmann::ordered_json &value);
  void setBreakers(const nlohmann::ordered_json &value);
  void setSamplers(const nlohmann::ordered_json &value);
  static const ParameterTable table;
};

/// Options of a sampler by the names of their parameters.
nlohmann::ordered_json describeSampling(const SamplerOptions &options);

/// A beam search, whose best answers are the choices.
struct BeamParameters {
  BeamOptions beams = {};

  void setEarlyStopping(const nlohmann::ordered_json &value);
  static const ParameterTable table;
};

/// Stop strings and stop tokens, and which of their texts an answer contains.
struct StopParameters {
  std::vector<std::string> stop;
  std::vector<int32_t> stopTokens;
  bool ignoreEos = false, includeStop = false, skipSpecial = true;

  void setStop(const nlohmann::ordered_json &value);
  static const ParameterTable table;
};

/// What an answer tells of its tokens. Each protocol has another kind of
/// "logprobs".
struct TokenParameters {
  bool logprobs = false;
  int64_t topLogprobs = 0;
  bool tokensAsIds = false, returnTokenIds = false;
  /// Whether an answer has the text of its prompt and its settings.
  bool isVerbose = false;

  static const ParameterTable table;
};

struct StreamParameters {
  bool stream = false, includeUsage = false, continuousUsage = false;
  bool returnProgress = false;

  static const ParameterTable table;
};

/// How the server treats a request.
struct RequestParameters {
  std::optional<int64_t> truncatePrompt;
  std::string cacheSalt;
  int32_t priority = 0;

  static const ParameterTable table;
};

struct EchoParameters {
  bool echo = false;

  static const ParameterTable table;
};

struct ReasoningParameters {
  /// Whether an answer has its reasoning apart from its content.
  bool splitReasoning = true;
  std::optional<int64_t> thinkingBudget;
  /// What the reasoning ends with when the budget is used up.
  std::string budgetMessage;

  void setFormat(const nlohmann::ordered_json &value);
  void setBudget(const nlohmann::ordered_json &value);
  static const ParameterTable table;
};

/// All that a generation reads. A protocol without one of these groups leaves
/// it at its default. The bases are data, whose names differ.
// NOLINTNEXTLINE(misc-multiple-inheritance)
struct AnswerParameters : SamplingParameters,
                          BeamParameters,
                          StopParameters,
                          GrammarParameters,
                          TokenParameters,
                          StreamParameters,
                          RequestParameters,
                          EchoParameters,
                          ReasoningParameters {};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ANSWERPARAMETERS_H
