//===- StepGradients.h - What gradients say to quantizers -------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_STEPGRADIENTS_H
#define QWEN_CALIBRATION_STEPGRADIENTS_H

#include "calibration/Steps.h"
#include "qwen/Quantizers/InputMoments.h"

#include "llvm/ADT/StringMap.h"

#include <span>
#include <vector>

namespace qwen {

/// The gradients by the outputs of a step's products, as far as quantizers need
/// them: how much each token counts, and second moments.
class StepGradients {
public:
  /// Of `tokens` tokens. Moments lie in `place`. Throws Error if there is no
  /// room.
  StepGradients(const CalibrationStep &step, size_t tokens, unsigned threads,
                Place place);

  /// Adds the gradient by the result of the product with `weight`: rows
  /// [tokens][outputs] of the tokens from `first` on.
  void add(size_t first, size_t tokens, llvm::StringRef weight,
           std::span<const float> gradient);
  /// Whether all of them were finite.
  bool isFinite() const;

  /// How many times each token counts for the products that read input `i` of
  /// the sublayer. The mean is 1.
  std::vector<float> tokenWeights(size_t i) const;
  /// The second moments of the outputs of `weight`, or null without them.
  const InputMoments *outputs(llvm::StringRef weight) const;

private:
  const unsigned threads;
  /// By Sublayer::inputs, the squares of each token's gradients.
  std::vector<std::vector<double>> squares;
  llvm::StringMap<size_t> inputOf;
  llvm::StringMap<InputMoments> moments;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_STEPGRADIENTS_H
