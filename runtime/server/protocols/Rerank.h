//===- Rerank.h - /v1/rerank ------------------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RERANK_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RERANK_H

#include "server/AnswerParameters.h"

#include "text/Retrieval.h"

namespace qwen::server {

struct RerankParameters : ModelParameters {
  std::string query;
  std::vector<std::string> documents;
  std::string instruction = Reranker::kInstruction;
  std::optional<int64_t> topCount;
  bool returnDocuments = false;
  /// Whether the request, and so the answer, has the form of Text Embeddings
  /// Inference.
  bool hasTexts = false;

  void setDocuments(const nlohmann::ordered_json &value);
  void setTexts(const nlohmann::ordered_json &value);
  static const ParameterTable table;
  using List = ParameterList<ModelParameters, RerankParameters>;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RERANK_H
