//===- EngineOptions.h - The options of an engine ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_ENGINEOPTIONS_H
#define QWEN_RUNTIME_ENGINE_ENGINEOPTIONS_H

#include "engine/drafters/Speculate.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace qwen {

/// When an engine compares the weights with their checksums.
enum class WeightCheck {
  /// While the model runs, on a thread of low priority.
  Background,
  /// Before the model runs.
  Now,
  Off,
};
/// The words of command lines for the values 0, 1, ...
constexpr std::array<std::string_view, 3> wordsOf(WeightCheck /*any*/) {
  return {"background", "now", "off"};
}

/// The commands that have an option of an engine.
enum class EnginePart {
  /// All that run a model.
  Run,
  /// Those that answer several requests at once.
  Sequences,
  /// Those whose sequences go on after an answer.
  Snapshots,
  /// Those that run one long prompt.
  Calls,
  /// Those that draw answers.
  Answers,
};

/// EngineOptions.def describes the fields. The pool of `threads` and the budget
/// of `maxMemory` are made beside the engines that share them.
struct EngineOptions {
#define QWEN_ENGINE_OPTION(Part, Type, Field, Name, Short, Default, ...)       \
  Type Field = Default;
#include "engine/EngineOptions.def"
  /// Whether a PageStore keeps its pages and snapshots: copies of one each take
  /// memory.
  bool isStored = false;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_ENGINEOPTIONS_H
