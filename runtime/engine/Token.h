//===- Token.h - A token to run, and the row that it gives ------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_TOKEN_H
#define QWEN_RUNTIME_ENGINE_TOKEN_H

#include "engine/SequenceState.h"

#include <optional>

namespace qwen {

/// What a wanted token gives.
enum class RowKind {
  /// What the model gives: logits, f32 [vocabSize], or scores, f32 [labels].
  Logits,
  /// Hidden values, f32 [hiddenSize].
  Hidden,
};

/// The three positions by which the rotary embedding of some programs rotates.
struct RopePosition {
  int32_t time, height, width;
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
  /// Its positions for the inputs "times", "heights" and "widths" of a program;
  /// without them, each is `position`.
  std::optional<RopePosition> rope = {};
  /// The number of its window, for the input "windows" of a program.
  int32_t window = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TOKEN_H
