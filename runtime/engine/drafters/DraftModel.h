//===- DraftModel.h - Drafts of a smaller model -----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTMODEL_H
#define QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTMODEL_H

#include "engine/drafters/Drafter.h"

#include <cstdint>
#include <memory>

namespace qwen {

struct Manifest;

/// Positions that a sequence of a draft model has at most. It sees the end of a
/// text that is longer.
inline constexpr int64_t kDraftPositions = 2048;

/// Pages of a draft model for one answer.
int64_t draftPagesOf(const Manifest &manifest);

/// Drafts for answers of `engine` with the model of `draft`, which has the same
/// tokens, and which no one else uses. It drafts for as many answers at once as
/// `draft` has sequences, or for fewer if `draft` lacks pages (draftPagesOf).
/// Both engines must outlive the drafter.
std::unique_ptr<Drafter> makeDraftModel(Engine &engine, Engine &draft);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTMODEL_H
