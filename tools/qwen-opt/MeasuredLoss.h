//===- MeasuredLoss.h - What formats lose on a small model ------*- C++ -*-===//
//
// MeasuredLoss.def expanded into data.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_OPT_MEASUREDLOSS_H
#define QWEN_OPT_MEASUREDLOSS_H

#include <optional>
#include <string_view>

namespace qwen {

/// KL divergences to the model in f32.
struct MeasuredLoss {
  /// A value of --weights.
  std::string_view name;
  double plain, calibrated;
};

inline constexpr MeasuredLoss kMeasuredLosses[] = {
#define QWEN_MEASURED_LOSS(Name, Plain, Calibrated) {Name, Plain, Calibrated},
#include "MeasuredLoss.def"
};

/// The row of a value of --weights, if it was measured.
constexpr std::optional<MeasuredLoss> measuredLossOf(std::string_view name) {
  for (const MeasuredLoss &loss : kMeasuredLosses)
    if (loss.name == name)
      return loss;
  return std::nullopt;
}

} // namespace qwen

#endif // QWEN_OPT_MEASUREDLOSS_H
