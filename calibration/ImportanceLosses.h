//===- ImportanceLosses.h - Losses by an importance matrix ------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_IMPORTANCELOSSES_H
#define QWEN_CALIBRATION_IMPORTANCELOSSES_H

#include "calibration/Sensitivities.h"
#include "qwen/Compiler/PlanFormats.h"

namespace qwen {

/// What each matrix of `input` loses in `formats`, which are quantized, by the
/// search and the importance matrix of `input`: the squared error of its
/// outputs, as a part of their squares. Columns of a matrix without a row count
/// the same. Throws Error.
Sensitivities importanceLosses(const PlanInput &input,
                               std::span<const WeightFormat> formats,
                               unsigned threads = machineThreads());

} // namespace qwen

#endif // QWEN_CALIBRATION_IMPORTANCELOSSES_H
