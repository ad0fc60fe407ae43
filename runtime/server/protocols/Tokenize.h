//===- Tokenize.h - /tokenize and /detokenize -------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_TOKENIZE_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_TOKENIZE_H

#include "server/protocols/openai/Chat.h"

namespace qwen::server {

/// A text, or a chat whose prompt is asked for.
struct TokenizeParameters : ChatParameters {
  std::optional<std::string> prompt;
  bool addSpecial = false, parseSpecial = true, withPieces = false;

  static const ParameterTable table;
  using List =
      ParameterList<ModelParameters, ToolParameters, TokenizeParameters>;
};

struct DetokenizeParameters : ModelParameters {
  std::vector<int32_t> tokens;

  static const ParameterTable table;
  using List = ParameterList<ModelParameters, DetokenizeParameters>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_TOKENIZE_H
