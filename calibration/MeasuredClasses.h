//===- MeasuredClasses.h - What classes of matrices lose --------*- C++ -*-===//
//
// One trial of a plan corrects what is expected of it: integers are chosen by
// most of a text, and each class of matrices loses by itself on the rest
// (docs/decisions/0044-budgets.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_MEASUREDCLASSES_H
#define QWEN_CALIBRATION_MEASUREDCLASSES_H

#include "calibration/Sensitivities.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace qwen {

/// What a trial said.
struct PlanTrial {
  /// Tokens that chose no integers (HeldOutWindows.h). 0 if the text has too
  /// few windows; nothing is measured then.
  int64_t tokens = 0;
  /// The KL divergence of the whole plan, and what was expected.
  double measured = 0, expected = 0;
  /// By class, such as "self_attn" and "mlp.experts", what losses are
  /// multiplied by.
  std::map<std::string, double> factors;
};

/// The name of a matrix without that of its layer, such as
/// "self_attn.q_proj.weight"; all of it in matrices of no layer.
std::string partOfLayer(const std::string &matrix);

/// The class of a matrix: its name without the numbers of layers and without
/// its own part, or what is left of it in matrices of no layer.
std::string matrixClass(const std::string &matrix);

/// Calibrates the matrices of `input` in the formats of `plan`, measures the KL
/// divergence of each class and of all, and multiplies `losses`, which have
/// gradients and are by `formats`, so that they promise what was measured. The
/// sources of `input` are as before then. `options` has no folder. The number
/// of threads changes no bit. Throws Error.
PlanTrial correctLosses(const QuantizeInput &input, const CalibrationText &text,
                        const MatrixFormats &plan,
                        std::span<const WeightFormat> formats,
                        Sensitivities &losses,
                        const CalibrationOptions &options);

} // namespace qwen

#endif // QWEN_CALIBRATION_MEASUREDCLASSES_H
