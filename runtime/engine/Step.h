//===- Step.h - A step between two calls ------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_STEP_H
#define QWEN_RUNTIME_ENGINE_STEP_H

#include "engine/Engine.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace qwen {

class Track;

/// What a drafter sees of a step after a call of `forward`.
class Step {
public:
  /// A token of the call whose sequence goes on.
  struct Place {
    const Track *track;
    int64_t position;
    /// The number of its row in outputs of `forward` that have one for each
    /// token.
    size_t row;
  };

  Step(Engine &engine, std::span<const Place> places)
      : engine(engine), places(places) {}

  /// The tokens of the call in its order. The tokens of a track follow each
  /// other.
  std::span<const Place> tokens() const { return places; }
  /// Runs a program between two calls of `forward`, as Engine::call does. It
  /// may read the rows of the last one.
  void between(std::string_view program, std::span<const Token> batch,
               std::span<const InputRows> given = {}, int64_t first = 0) {
    engine.call(program, batch, given, first);
  }
  /// A row of an output of a program, as Engine::row has it. Rows of logits
  /// last until `between`.
  std::span<const float> row(std::string_view program, std::string_view output,
                             size_t index) const {
    return engine.row(program, output, index);
  }

private:
  Engine &engine;
  const std::span<const Place> places;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_STEP_H
