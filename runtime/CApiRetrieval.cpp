//===- CApiRetrieval.cpp - C interface of embeddings and scores -----------===//

#include "CApiModel.h"
#include "text/Retrieval.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::capi;

static Reranker rerankerOf(const qwen_model &model) {
  return {model.tokenizer(), model.info().output, model.path()};
}

int32_t qwen_hidden_size(const qwen_model *model) {
  return guard<int32_t>([&] {
    needArgument("qwen_hidden_size: model", model);
    return static_cast<int32_t>(model->info().hiddenSize);
  });
}

int64_t qwen_encode_embedding(const qwen_model *model, const char *text,
                              size_t size, int32_t *ids, size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_encode_embedding: model", model);
    if (size)
      needArgument("qwen_encode_embedding: text", text);
    if (capacity)
      needArgument("qwen_encode_embedding: ids", ids);
    model->info().output.requireEmbedding(model->path());
    return copyOut(embeddingPrompt(model->tokenizer(), {text, size}), ids,
                   capacity);
  });
}

int32_t qwen_embedding(const float *hidden, size_t count, float *embedding) {
  return guard<int32_t>([&] {
    needArgument("qwen_embedding: hidden", hidden);
    needArgument("qwen_embedding: embedding", embedding);
    std::ranges::copy(embeddingOf({hidden, count}, count), embedding);
    return 0;
  });
}

int64_t qwen_encode_rerank(const qwen_model *model, const char *instruction,
                           const char *query, const char *document,
                           int32_t *ids, size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_encode_rerank: model", model);
    needArgument("qwen_encode_rerank: query", query);
    needArgument("qwen_encode_rerank: document", document);
    if (capacity)
      needArgument("qwen_encode_rerank: ids", ids);
    const char *const how = instruction ? instruction : Reranker::kInstruction;
    return copyOut(rerankerOf(*model).prompt(how, query, document), ids,
                   capacity);
  });
}

int32_t qwen_rerank_score(const qwen_model *model, const float *row,
                          float *score) {
  return guard<int32_t>([&] {
    needArgument("qwen_rerank_score: model", model);
    needArgument("qwen_rerank_score: row", row);
    needArgument("qwen_rerank_score: score", score);
    const ModelInfo &info = model->info();
    const auto width = static_cast<size_t>(info.output.width(info.vocabSize));
    *score = rerankerOf(*model).score({row, width});
    return 0;
  });
}
