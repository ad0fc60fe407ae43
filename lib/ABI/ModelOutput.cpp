//===- ModelOutput.cpp - What a model gives for a token -------------------===//

#include "qwen/ABI/ModelOutput.h"

#include "qwen/Support/Named.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;

std::string_view qwen::outputKindName(OutputKind kind) {
  switch (kind) {
  case OutputKind::Logits:
    return "logits";
  case OutputKind::Scores:
    return "scores";
  case OutputKind::Drafts:
    return "drafts";
  case OutputKind::None:
    return "none";
  }
  return {};
}

std::optional<OutputKind> qwen::parseOutputKind(std::string_view name) {
  constexpr OutputKind kinds[] = {OutputKind::Logits, OutputKind::Scores,
                                  OutputKind::Drafts, OutputKind::None};
  return findNamed(kinds, name, outputKindName);
}

bool qwen::areSupported(std::span<const std::string> labels) {
  return labels.size() == 2 &&
         std::ranges::find(labels, kYesLabel) != labels.end() &&
         std::ranges::find(labels, kNoLabel) != labels.end();
}

void ModelOutput::requireRows(const std::string &owner) const {
  if (kind == OutputKind::None)
    throw NoOutput(owner +
                   " has no logits: its checkpoint has no lm_head and does "
                   "not tie it to the embedding; it embeds texts only "
                   "(qwen-run embed, /v1/embeddings)");
}

void ModelOutput::requireLogits(const std::string &owner) const {
  requireDrafts(owner);
  requireScores(owner);
}

void ModelOutput::requireDrafts(const std::string &owner) const {
  requireRows(owner);
  if (kind == OutputKind::Scores)
    throw NoOutput(owner +
                   " has no logits: its checkpoint has a head of scores in "
                   "place of an lm_head; it reranks documents only (qwen-run "
                   "rerank, /v1/rerank)");
}

void ModelOutput::requireScores(const std::string &owner) const {
  requireRows(owner);
  if (kind == OutputKind::Drafts)
    throw NoOutput(owner + " has logits of " + std::to_string(tokens.size()) +
                   " tokens only: it drafts for other models (--speculate); "
                   "compile it without --draft-vocabulary for all logits");
}

void ModelOutput::requireEmbedding(const std::string &owner) const {
  if (pooling != kLastPooling)
    throw NoOutput(owner +
                   " has no embedding of the last token: the pooling of "
                   "its checkpoint is " +
                   quote(pooling) + " when " + quote(kLastPooling) +
                   " is needed");
}
