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
  return with<int32_t>(__func__, model, [&] {
    return static_cast<int32_t>(model->info().hiddenSize);
  });
}

int64_t qwen_encode_embedding(const qwen_model *model, const char *text,
                              size_t size, int32_t *ids, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("text", text, size);
    need("ids", ids, capacity);
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
  return with<int64_t>(__func__, model, [&](Need need) {
    need("query", query);
    need("document", document);
    need("ids", ids, capacity);
    const char *const how = instruction ? instruction : Reranker::kInstruction;
    return copyOut(rerankerOf(*model).prompt(how, query, document), ids,
                   capacity);
  });
}

int32_t qwen_rerank_score(const qwen_model *model, const float *row,
                          float *score) {
  return with<int32_t>(__func__, model, [&](Need need) {
    need("row", row);
    need("score", score);
    const ModelInfo &info = model->info();
    const auto width = static_cast<size_t>(info.output.width(info.vocabSize));
    *score = rerankerOf(*model).score({row, width});
    return 0;
  });
}
