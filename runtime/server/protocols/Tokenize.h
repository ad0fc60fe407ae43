//===- Tokenize.h - /tokenize and /detokenize -------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_TOKENIZE_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_TOKENIZE_H

#include "server/AnswerParameters.h"

namespace qwen::server {

struct TokenizeParameters : ModelParameters {
  std::optional<std::string> prompt;
  bool addSpecial = false, parseSpecial = true, withPieces = false;

  static const ParameterTable table;
  using List = ParameterList<ModelParameters, TokenizeParameters>;
};

struct DetokenizeParameters : ModelParameters {
  std::vector<int32_t> tokens;

  static const ParameterTable table;
  using List = ParameterList<ModelParameters, DetokenizeParameters>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_TOKENIZE_H
