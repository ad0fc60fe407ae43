//===- QuantizationConfig.h - Weights by a configuration --------*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_QUANTIZATIONCONFIG_H
#define QWEN_LIB_IMPORT_CHECKPOINT_QUANTIZATIONCONFIG_H

#include "qwen/Import/Checkpoint/ModelConfig.h"
#include "qwen/Import/Checkpoint/StoredTensors.h"
#include "qwen/Weights/WeightSource.h"

namespace qwen {

/// The weights of a folder by the quantization configuration of `model`. Notes
/// keys of it that are not used, and whether it has no effect. Throws Error for
/// a configuration or a tensor that is not supported.
WeightSources readWeights(const StoredTensors &tensors, ModelConfig &model);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_QUANTIZATIONCONFIG_H
