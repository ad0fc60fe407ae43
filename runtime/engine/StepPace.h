//===- StepPace.h - Prompt tokens that a step may run -----------*- C++ -*-===//
//
// Prompts delay the sequences that decode. From measured times, this class
// computes how many prompt tokens keep a step short enough. It assumes only
// that n times as many tokens take at most n times as long.
//
// A few tokens of a model with experts read nearly as many weights as hundreds.
// So steps in which nobody decodes have no limit of time there, and their times
// tell nothing of the short steps beside others.
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
  StepPace(int64_t decoding, int64_t mostPrompt, bool hasExperts = false);

  /// The greatest number of prompt tokens in a step with `decoding` tokens that
  /// decode. With these, the step should take less than twice as long as
  /// without; without any that decode, at most half a second, or as long as
  /// experts take for `mostPrompt`. The number is at least leastPrompt(), or 0
  /// if a step without prompt tokens must be measured.
  int64_t promptTokens(int64_t decoding) const;

  /// Records the time of a step.
  void record(int64_t decoding, int64_t prompt, double taken);

  /// Each token more reads other experts: four beside one that decodes would
  /// take more than twice its time.
  int64_t leastPrompt() const { return hasExperts ? 2 : 4; }

private:
  /// Sums over steps with prompt tokens; the last steps count most.
  struct Sums {
    double seconds = 0, tokens = 0;
  };

  /// Seconds of a step with `decoding` tokens and no prompt, or 0 if neither it
  /// nor a shorter one is measured.
  double decodeSeconds(int64_t decoding) const;

  int64_t mostPrompt;
  bool hasExperts;
  /// Seconds of steps without prompt tokens, by the number of tokens; 0: not
  /// measured.
  std::vector<double> withoutPrompt;
  /// Number of steps with prompt tokens and tokens that decode since the last
  /// step without prompt tokens.
  int64_t unmeasured = 0;
  /// Sums over steps with tokens that decode, and over other steps.
  Sums beside, alone;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_STEPPACE_H
