//===- StepGradients.h - What gradients say to quantizers -------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_STEPGRADIENTS_H
#define QWEN_CALIBRATION_STEPGRADIENTS_H

#include "calibration/BackwardPass.h"
#include "calibration/Steps.h"
#include "calibration/TextRun.h"
#include "qwen/Quantizers/InputMoments.h"

#include "llvm/ADT/StringMap.h"

#include <optional>
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

  /// Adds a gradient whose tokens begin with token `first` of the text.
  void add(size_t first, const ProductGradient &gradient);
  /// Ends the sums. Returns whether all of them are finite.
  bool finish();

  /// How many times each of these rows counts for the products that read them.
  /// The mean is 1, of experts the mean of each.
  std::vector<float> weights(const ReadRows &read) const;
  /// The second moments of the outputs of `weight`, or of the outputs of one of
  /// its experts; null without gradients by them.
  const InputMoments *outputs(llvm::StringRef weight, size_t expert) const;

private:
  static constexpr int64_t kNone = -1;
  /// The squares of the gradients by the products of an input.
  struct Squares {
    Squares(size_t tokens, const ProductInput &input)
        : choices(static_cast<size_t>(input.choices())),
          experts(tokens * choices, kNone), sums(experts.size()),
          means(static_cast<size_t>(input.experts)) {}
    /// The place of a token's sum for an expert, or the next one that no expert
    /// has; none of a token that has chosen others.
    std::optional<size_t> place(size_t token, int64_t expert) const;

    const size_t choices;
    /// The experts of each token, in the order of their gradients, and sums.
    std::vector<int64_t> experts;
    std::vector<double> sums;
    /// By expert, of its tokens.
    std::vector<double> means;
  };

  const unsigned threads;
  /// By Sublayer::inputs.
  std::vector<Squares> squares;
  llvm::StringMap<size_t> inputOf;
  /// By the weight, of each expert.
  llvm::StringMap<std::vector<InputMoments>> moments;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_STEPGRADIENTS_H
