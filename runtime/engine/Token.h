//===- Token.h - A token to run, and the row that it gives ------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_TOKEN_H
#define QWEN_RUNTIME_ENGINE_TOKEN_H

#include "engine/SequenceState.h"

#include <optional>
#include <span>
#include <string_view>

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

/// Rows for an input of a program: one for each of what it counts, in order.
struct InputRows {
  std::string_view input;
  std::span<const float> values;
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
  /// Its row of inputs of `forward`, by their names. Its row of any other input
  /// that the caller gives is zeros. They must last until the token has run.
  std::span<const InputRows> inputs = {};
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TOKEN_H
