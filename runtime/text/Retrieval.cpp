//===- Retrieval.cpp - Embeddings and scores of texts ---------------------===//

#include "text/Retrieval.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Support/Text.h"

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

/// Where a row of the model has `word`: the place of the label or the id of the
/// token.
static size_t placeOf(std::string_view word, const Tokenizer &tokenizer,
                      const ModelOutput &output) {
  if (output.kind == OutputKind::Scores)
    return static_cast<size_t>(std::ranges::find(output.labels, word) -
                               output.labels.begin());
  const std::vector<int32_t> ids = tokenizer.encode(word);
  if (ids.size() != 1)
    throw NoOutput("the model cannot rerank: its tokenizer has " +
                   std::to_string(ids.size()) + " tokens for " + quote(word) +
                   " when one is needed");
  return static_cast<size_t>(ids.front());
}

Reranker::Reranker(const Tokenizer &textTokenizer, const ModelOutput &output,
                   const std::string &owner)
    : tokenizer(&textTokenizer) {
  output.requireScores(owner);
  yes = placeOf(kYesLabel, textTokenizer, output);
  no = placeOf(kNoLabel, textTokenizer, output);
}

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

float Reranker::score(std::span<const float> row) const {
  const double difference = static_cast<double>(row[no]) - row[yes];
  return static_cast<float>(1 / (1 + numerics::exp(difference)));
}
