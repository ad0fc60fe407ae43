//===- Embeddings.h - /v1/embeddings ----------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_EMBEDDINGS_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_EMBEDDINGS_H

#include "server/AnswerParameters.h"

namespace qwen::server {

struct EmbeddingParameters : ModelParameters, PromptParameters {
  bool base64 = false;
  std::optional<int64_t> dimensions;

  void setFormat(const nlohmann::ordered_json &value);
  static const ParameterTable table;
  using List = ParameterList<ModelParameters, EmbeddingParameters>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_EMBEDDINGS_H
