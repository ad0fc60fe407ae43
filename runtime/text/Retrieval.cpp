//===- Retrieval.cpp - Embeddings and scores of texts ---------------------===//

#include "text/Retrieval.h"

#include "qwen/ABI/Error.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

std::vector<int32_t> qwen::embeddingPrompt(const Tokenizer &tokenizer,
                                           std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  if (const std::optional<int32_t> last = tokenizer.appendedToken())
    ids.push_back(*last);
  return ids;
}

std::vector<float> qwen::embeddingOf(std::span<const float> hidden,
                                     size_t dimensions) {
  const auto first = hidden.first(std::min(dimensions, hidden.size()));
  double squares = 0;
  for (float value : first)
    squares += static_cast<double>(value) * value;
  const double length = squares > 0 ? std::sqrt(squares) : 1;
  std::vector<float> embedding;
  for (float value : first)
    embedding.push_back(static_cast<float>(value / length));
  return embedding;
}

static size_t tokenOf(const Tokenizer &tokenizer, const char *word) {
  const std::vector<int32_t> ids = tokenizer.encode(word);
  if (ids.size() != 1)
    throw Error("the model cannot rerank: its tokenizer has " +
                std::to_string(ids.size()) + " tokens for \"" + word +
                "\" when one is needed");
  return static_cast<size_t>(ids.front());
}

Reranker::Reranker(const Tokenizer &textTokenizer)
    : tokenizer(&textTokenizer), yes(tokenOf(textTokenizer, "yes")),
      no(tokenOf(textTokenizer, "no")) {}

std::vector<int32_t> Reranker::prompt(std::string_view instruction,
                                      std::string_view query,
                                      std::string_view document) const {
  constexpr std::string_view kBefore =
      "<|im_start|>system\nJudge whether the Document meets the requirements "
      "based on the Query and the Instruct provided. Note that the answer can "
      "only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
  constexpr std::string_view kAfter =
      "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  std::string question = "<Instruct>: ";
  question += instruction;
  question += "\n<Query>: ";
  question += query;
  question += "\n<Document>: ";
  question += document;
  std::vector<int32_t> ids = tokenizer->encode(kBefore);
  for (const auto &part : {tokenizer->encode(question, /*allowSpecial=*/false),
                           tokenizer->encode(kAfter)})
    ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

float Reranker::score(std::span<const float> logits) const {
  const double difference = static_cast<double>(logits[no]) - logits[yes];
  return static_cast<float>(1 / (1 + std::exp(difference)));
}
