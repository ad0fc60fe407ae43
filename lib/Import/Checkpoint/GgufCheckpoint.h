//===- GgufCheckpoint.h - A model in GGUF files -----------------*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_GGUFCHECKPOINT_H
#define QWEN_LIB_IMPORT_CHECKPOINT_GGUFCHECKPOINT_H

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include <filesystem>
#include <memory>

namespace qwen {

/// Opens a file, and the others of a split one. Throws Error like parseGguf,
/// and for keys and tensors that are missing, contradict each other or are not
/// supported.
std::unique_ptr<Checkpoint> openGguf(const std::filesystem::path &path,
                                     const AdaptFn &adapt);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_GGUFCHECKPOINT_H
