//===- Adam.h - Steps down a gradient ---------------------------*- C++ -*-===//

#ifndef QWEN_GRADIENTS_ADAM_H
#define QWEN_GRADIENTS_ADAM_H

#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// Adam (Kingma and Ba 2014, arXiv 1412.6980) with decays .9 and .98, over
/// numbers that each have a unit: a step changes a number by about `rate`
/// units. Threads change no bit.
class Adam {
public:
  /// All numbers stay where their unit is 0.
  explicit Adam(std::vector<float> units);

  /// Changes `numbers` against `gradient`, the gradient by them.
  void step(std::span<const float> gradient, float rate,
            std::span<float> numbers, unsigned threads);

  /// The decayed means of gradients by units, and behind them of their squares:
  /// what a run that goes on needs, beside the number of steps.
  std::span<float> means() { return sums; }
  void setSteps(int64_t count) { steps = count; }

private:
  const std::vector<float> units;
  std::vector<float> sums;
  int64_t steps = 0;
};

/// The part of the greatest rate that step `step` of `steps` has: it falls from
/// 1 to 0 by half a cosine.
float cosineRate(int64_t step, int64_t steps);

} // namespace qwen

#endif // QWEN_GRADIENTS_ADAM_H
