//===- Qwen1.h - Keys and tensors of Qwen 1 ---------------------*- C++ -*-===//
//
// Qwen 1 computes as Qwen2 does. Its tensors have other names, and one tensor
// holds q, k and v.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_QWEN1_H
#define QWEN_LIB_IMPORT_CHECKPOINT_QWEN1_H

#include "qwen/Import/Checkpoint/ModelConfig.h"
#include "qwen/Import/Checkpoint/StoredTensors.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Weights/WeightSource.h"

namespace qwen {

/// Reads the config.json `root`, the file `path`, with the keys of Qwen 1 or of
/// its first checkpoints. Where use_dynamic_ntk or use_logn_attn is true, the
/// model has the seq_length positions at which both change nothing. Throws
/// Error like readModelConfig.
void parseQwen1Config(const JsonValue &root, const std::string &path,
                      ModelConfig &model);

/// Gives the tensors of a Qwen 1 the names that a Qwen2 has for them. The
/// tensors that hold q, k and v keep their names. Throws Error if two tensors
/// have the same name in the model.
StoredTensors nameAsQwen2(StoredTensors tensors);

/// Adds q, k and v apart. Throws Error for outputs that three does not divide.
void divideQwen1Projections(WeightSources &sources);

/// The name that nameAsQwen2 gives a tensor, or the module, `own`.
std::string qwen2Name(std::string_view own);

/// The name of a Qwen 1's tensor that has `name` in a Qwen2.
std::string qwen1Name(std::string_view name);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_QWEN1_H
