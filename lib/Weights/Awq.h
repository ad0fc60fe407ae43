//===- Awq.h - Weights as AWQ packs them ------------------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_AWQ_H
#define QWEN_LIB_WEIGHTS_AWQ_H

#include "qwen/Weights/Forms.h"

namespace qwen {

/// How a module of a checkpoint of AWQ or of AutoRound is quantized: in 4 bits.
struct AwqSettings {
  /// Columns of a group, or -1 for all.
  int64_t group;
  /// Whether all zero points must be 8.
  bool isSymmetric = false;
  /// Whether an output is a row of its tensors ("gemv"), or a column ("gemm").
  bool hasRows = false;
};

/// The weight of qweight, scales and qzeros; `form` names it in the summary.
/// Throws Error where the tensors contradict the settings or each other.
WeightSourcePtr makeAwqWeight(WeightTensors tensors,
                              const AwqSettings &settings,
                              std::string_view form);

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_AWQ_H
