//===- Fill.h - /infill -----------------------------------------*- C++ -*-===//
//
// llama-server's form of what stands between two texts, for editors.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_FILL_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_FILL_H

#include "server/AnswerParameters.h"
#include "text/FillTokens.h"

namespace qwen::server {

class Service;

/// Throws ApiError (400): `name` needs a model with these tokens.
[[noreturn]] void refuseToFill(const std::string &name);

/// The tokens of the model. Throws ApiError (400), which names what needs them,
/// if it has none.
FillTokens requireFill(const Service &service, const std::string &name);

/// The parameters of /infill.
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
