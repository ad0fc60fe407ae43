//===- Token.h - A token to run, and the row that it gives ------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_TOKEN_H
#define QWEN_RUNTIME_ENGINE_TOKEN_H

#include "engine/SequenceState.h"

namespace qwen {

/// What a wanted token gives.
enum class RowKind {
  /// What the model gives: logits, f32 [vocabSize], or scores, f32 [labels].
  Logits,
  /// Hidden values, f32 [hiddenSize].
  Hidden,
};

/// One token to run.
struct Token {
  int32_t id;
  SequenceId sequence;
  /// The number of tokens before it in its sequence.
  int64_t position;
  /// Whether the caller wants its row of the result, and which one.
  bool wanted;
  RowKind row = RowKind::Logits;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TOKEN_H
