//===- ModelReader.h - What readers of configurations share -----*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_MODELREADER_H
#define QWEN_LIB_IMPORT_CHECKPOINT_MODELREADER_H

#include "qwen/Import/Checkpoint/ModelConfig.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen {

/// The largest value of a size (kShapeFacts).
int64_t mostOf(int64_t ModelShape::*size);

/// "supported are qwen2 (Qwen2, Qwen2.5), qwen3 and qwen35", by the names
/// `name` of a container.
std::string supportedArchitectures(std::string_view ArchitectureInfo::*name);

/// Reads the sizes that a container must have, from 1 on. `at` gives the value
/// of a SizeKey.
template <typename Keys, typename At>
void readSizes(const Keys &keys, At at, ModelShape &shape) {
  for (const SizeKey &key : keys)
    shape.*key.size = at(key).integer(1, mostOf(key.size));
}

/// Gives `model` these parameters of YaRN and as many positions as they make
/// of those in training.
void setYarn(ModelConfig &model, const Yarn &yarn);

/// Adds a note about `what`, such as "unknown keys", if there are `names`.
void noteUnusedKeys(const std::string &what,
                    const std::vector<std::string> &names, ModelConfig &model);

/// Throws Error, which begins with `path`, for a head_dim or a K of a product
/// that is not supported (ModelShape).
void checkSizes(const std::string &path, const ModelShape &model);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_MODELREADER_H
