//===- StepPace.h - Prompt tokens that a step may run -----------*- C++ -*-===//
//
// Prompts delay the sequences that decode. From measured times, this class
// computes how many prompt tokens keep a step short enough. It assumes only
// that n times as many tokens take at most n times as long.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_STEPPACE_H
#define QWEN_RUNTIME_ENGINE_STEPPACE_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qwen {

class StepPace {
public:
  /// For steps with at most `decoding` tokens that decode and `mostPrompt`
  /// prompt tokens.
  StepPace(size_t decoding, int64_t mostPrompt);

  /// The greatest number of prompt tokens in a step with `decoding` tokens that
  /// decode. With these, the step should take less than twice as long as
  /// without; without any that decode, at most half a second. The number is at
  /// least kLeastPrompt, or 0 if a step without prompt tokens must be measured.
  int64_t promptTokens(size_t decoding) const;

  /// Records the time of a step.
  void record(size_t decoding, int64_t prompt, double taken);

  static constexpr int64_t kLeastPrompt = 4;

private:
  /// Seconds of a step with `decoding` tokens and no prompt, or 0 if neither it
  /// nor a shorter one is measured.
  double decodeSeconds(size_t decoding) const;

  int64_t mostPrompt;
  /// Seconds of steps without prompt tokens, by the number of tokens; 0: not
  /// measured.
  std::vector<double> withoutPrompt;
  /// Steps with both since the last one without prompt tokens.
  int64_t unmeasured = 0;
  /// Sums over steps with prompt tokens; the last steps count most.
  double seconds = 0, tokens = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_STEPPACE_H
