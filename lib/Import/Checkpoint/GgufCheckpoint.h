//===- GgufCheckpoint.h - A model in GGUF files -----------------*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_GGUFCHECKPOINT_H
#define QWEN_LIB_IMPORT_CHECKPOINT_GGUFCHECKPOINT_H

#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Import/Checkpoint/Gguf.h"

#include <filesystem>
#include <memory>
#include <span>

namespace qwen {

/// Opens a file, and the others of a split one. Throws Error like parseGguf,
/// and for keys and tensors that are missing, contradict each other or are not
/// supported.
std::unique_ptr<Checkpoint> openGguf(const std::filesystem::path &path,
                                     const AdaptFn &adapt,
                                     std::span<const ScopedModel> scopes);

/// Adds the tensors of the other split files to `gguf`, the first one, which is
/// `file` in the folder of `tensors`. Throws Error for files that do not belong
/// together.
void addSplitFiles(StoredTensors &tensors, const std::string &file,
                   GgufFile &gguf);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_GGUFCHECKPOINT_H
