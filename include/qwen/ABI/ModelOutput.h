//===- ModelOutput.h - What a model gives for a token -----------*- C++ -*-===//
//
// The importer finds these facts in the checkpoint; the manifest stores them
// ("model" in docs/artifact.md), and the runtime refuses what a model lacks.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_MODELOUTPUT_H
#define QWEN_ABI_MODELOUTPUT_H

#include "qwen/Support/Error.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// The model does not give what the caller asks for.
class NoOutput : public Error {
public:
  using Error::Error;
};

/// What the last product of a model gives.
enum class OutputKind : uint8_t {
  /// A logit for each id of the vocabulary.
  Logits,
  /// A score for each label.
  Scores,
  /// A logit for each token that a draft can be: the model is for drafts alone.
  Drafts,
  /// Nothing: the model only gives hidden values.
  None,
};

/// Returns "logits", "scores", "drafts" or "none".
std::string_view outputKindName(OutputKind kind);
std::optional<OutputKind> parseOutputKind(std::string_view name);

/// The labels that a model with scores must have, in any order: a document
/// answers a query, or does not.
inline constexpr std::string_view kYesLabel = "yes", kNoLabel = "no";
bool areSupported(std::span<const std::string> labels);

/// The pooling that takes the hidden values of the last token.
inline constexpr std::string_view kLastPooling = "last";

/// What a model gives for a token beside its hidden values, and how its
/// checkpoint makes an embedding of these.
struct ModelOutput {
  OutputKind kind = OutputKind::Logits;
  /// The name of each score, in order.
  std::vector<std::string> labels = {};
  /// The ids of the logits of drafts, ascending.
  std::vector<int32_t> tokens = {};
  std::string pooling = std::string(kLastPooling);

  bool operator==(const ModelOutput &) const = default;

  /// Outputs of the last product. The code of a model that gives nothing has
  /// the product with the embedding, which the runtime never runs.
  int64_t width(int64_t vocabSize) const {
    if (kind == OutputKind::Drafts)
      return std::ssize(tokens);
    return kind == OutputKind::Scores ? std::ssize(labels) : vocabSize;
  }

  /// Throw NoOutput, which begins with the name `owner` of the model, if
  /// it gives nothing but hidden values; if it does not give logits of all ids;
  /// if it cannot draft; if it can score no document; and if the last token has
  /// not the embedding.
  void requireRows(const std::string &owner) const;
  void requireLogits(const std::string &owner) const;
  void requireDrafts(const std::string &owner) const;
  void requireScores(const std::string &owner) const;
  void requireEmbedding(const std::string &owner) const;
};

} // namespace qwen

#endif // QWEN_ABI_MODELOUTPUT_H
