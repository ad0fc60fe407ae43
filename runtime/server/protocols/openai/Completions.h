//===- Completions.h - /v1/completions --------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_COMPLETIONS_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_COMPLETIONS_H

#include "server/AnswerParameters.h"

namespace qwen::server {

// NOLINTNEXTLINE(misc-multiple-inheritance): data
struct CompletionParameters : ModelParameters,
                              PromptParameters,
                              AnswerParameters {
  /// What follows the answer; empty for nothing.
  std::string suffix;
  /// Number of choices that are generated. The answer has the best: their
  /// tokens have the highest mean logprob. Nothing: the answer has all of
  /// `choices`.
  std::optional<int64_t> bestOf;

  void setLogprobs(const nlohmann::ordered_json &value);
  static const ParameterTable table;
  using List =
      ParameterList<ModelParameters, SamplingParameters, BeamParameters,
                    StopParameters, GrammarParameters, TokenParameters,
                    StreamParameters, RequestParameters, EchoParameters,
                    CompletionParameters>;
};

class Service;
struct GenerationTask;

/// The prompts of a completion, and how it is answered. Throws ApiError.
GenerationTask completionTask(const Service &service,
                              const CompletionParameters &parameters);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_COMPLETIONS_H
