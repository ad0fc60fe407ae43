//===- Fill.h - What stands between two texts -------------------*- C++ -*-===//
//
// Models of code fill in the middle: their prompt has what stands before and
// behind it, between tokens of their own.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_FILL_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_FILL_H

#include "server/AnswerParameters.h"
#include "text/Tokenizer.h"

namespace qwen::server {

class Service;

/// The tokens around the parts of a prompt.
struct FillTokens {
  int32_t prefix, suffix, middle;
  /// Others of the vocabulary, which also end an answer.
  std::vector<int32_t> ends;

  /// Nothing if the vocabulary lacks one of the first three.
  static std::optional<FillTokens> of(const Tokenizer &tokenizer);
};

/// The prompt for what stands between two texts.
std::vector<int32_t> fillPrompt(const FillTokens &tokens,
                                std::span<const int32_t> before,
                                std::span<const int32_t> behind);

/// Throws ApiError (400): `name` needs a model with these tokens.
[[noreturn]] void refuseToFill(const std::string &name);

/// The tokens of the model. Throws ApiError (400), which names what needs them,
/// if it has none.
FillTokens requireFill(const Service &service, const std::string &name);

/// Of /infill.
// NOLINTNEXTLINE(misc-multiple-inheritance): data
struct FillParameters : ModelParameters, AnswerParameters {
  std::string before, behind, begun;
  /// Texts of other files, each with a "text" and maybe a "filename".
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  /// What of the answer is returned, as paths with "/"; none: all.
  std::vector<std::string> fields;

  /// llama-server's "infill" is none of ours and has no effect.
  void setOwnSamplers(const nlohmann::ordered_json &value);

  static const ParameterTable table;
  using List =
      ParameterList<ModelParameters, SamplingParameters, StopParameters,
                    GrammarParameters, StreamParameters, RequestParameters,
                    FillParameters>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_FILL_H
