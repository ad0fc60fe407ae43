//===- Gptq.h - Weights as GPTQ packs them ----------------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_GPTQ_H
#define QWEN_LIB_WEIGHTS_GPTQ_H

#include "qwen/Weights/Forms.h"

namespace qwen {

/// How a module of a checkpoint of GPTQ or of AutoRound is quantized.
struct GptqSettings {
  /// 4 or 8.
  int bits;
  /// Columns of a group, or -1 for all.
  int64_t group;
  bool isSymmetric;
  /// Whether qzeros has zero points less 1, as version 1 of GPTQ stores them.
  bool storesLess;
  /// Whether a module needs g_idx: its groups have scattered columns.
  bool needsGroups = false;
};

/// The weight of qweight, scales, qzeros and g_idx; the last two may be null.
/// `form` names it in the summary. Throws Error where the tensors contradict
/// the settings or each other.
WeightSourcePtr makeGptqWeight(WeightTensors tensors,
                               const GptqSettings &settings,
                               std::string_view form);

/// 4 or 8. Throws Error for other bits of a configuration.
int parseGptqBits(const JsonValue &bits);

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_GPTQ_H
