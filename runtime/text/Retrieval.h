//===- Retrieval.h - Embeddings and scores of texts -------------*- C++ -*-===//
//
// The prompts of models that embed texts (Qwen3-Embedding) or rerank documents
// (Qwen3-Reranker), and what the rows of their last tokens mean.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_RETRIEVAL_H
#define QWEN_RUNTIME_TEXT_RETRIEVAL_H

#include "text/Tokenizer.h"

#include "qwen/ABI/ModelOutput.h"

namespace qwen {

/// The tokens of a text that is embedded: with the token that the checkpoint
/// appends to texts.
std::vector<int32_t> embeddingPrompt(const Tokenizer &tokenizer,
                                     std::string_view text);

/// The embedding of a text, of length 1, from the hidden values of its last
/// token. It has the first `dimensions` of them.
std::vector<float> embeddingOf(std::span<const float> hidden,
                               size_t dimensions);

/// Asks the model whether a document answers a query, with the prompt of
/// Qwen3-Reranker.
class Reranker {
public:
  static constexpr const char *kInstruction =
      "Given a web search query, retrieve relevant passages that answer the "
      "query";

  /// `tokenizer` must outlive the reranker. Throws Error if the model, which
  /// `owner` names, has no scores, or has logits when the tokenizer has no
  /// single tokens for "yes" and "no".
  Reranker(const Tokenizer &tokenizer, const ModelOutput &output,
           const std::string &owner);

  /// The tokens of the prompt. Special tokens in the three texts are ordinary
  /// text.
  std::vector<int32_t> prompt(std::string_view instruction,
                              std::string_view query,
                              std::string_view document) const;

  /// The probability of "yes" against "no", from 0 to 1, from the logits or
  /// scores of the last token.
  float score(std::span<const float> row) const;

private:
  const Tokenizer *tokenizer;
  /// Their places in a row.
  size_t yes, no;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_RETRIEVAL_H
