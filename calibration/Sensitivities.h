//===- Sensitivities.h - What a model loses in each format ------*- C++ -*-===//
//
// What each matrix of a model loses in each of some formats, by a part of a
// calibration text (docs/decisions/0044-budgets.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_SENSITIVITIES_H
#define QWEN_CALIBRATION_SENSITIVITIES_H

#include "calibration/Calibration.h"

#include "llvm/ADT/StringMap.h"

#include <span>
#include <string>
#include <vector>

namespace qwen {

/// The tokens of a text that sensitivities are measured by, about: a quarter of
/// what chooses integers.
inline constexpr int64_t kSensitivityTokens = 8192;

struct Sensitivities {
  /// By the name of a matrix, its loss in each format: the KL divergence of a
  /// token to the model in f32 that errors of this matrix alone make, in nats
  /// and to the second order. Without gradients, the squared error of the
  /// matrix's outputs, as a part of their squares.
  llvm::StringMap<std::vector<double>> losses;
  /// What inputs of products in int8 lose, whatever formats the matrices have;
  /// 0 without gradients.
  double activations = 0;
  /// Why there are no gradients, or empty.
  std::string withoutGradient;
  /// The last sublayer whose gradient is not finite, or empty. The losses of
  /// its matrices, and of those before it, are parts of the squares of outputs
  /// that count as much as others with gradients do.
  std::string notFinite;
};

/// Measures the matrices of `input` in `formats`, which are quantized, by whole
/// windows that are spread over `text`. `options` has no folder. The number of
/// threads changes no bit. Throws Error.
Sensitivities measureSensitivities(const QuantizeInput &input,
                                   const CalibrationText &text,
                                   std::span<const WeightFormat> formats,
                                   const CalibrationOptions &options);

} // namespace qwen

#endif // QWEN_CALIBRATION_SENSITIVITIES_H
