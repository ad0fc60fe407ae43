//===- Pooling.h - How a folder makes embeddings ----------------*- C++ -*-===//

#ifndef QWEN_IMPORT_CHECKPOINT_POOLING_H
#define QWEN_IMPORT_CHECKPOINT_POOLING_H

#include <filesystem>
#include <string>

namespace qwen {

/// The pooling of ModelOutput, from the files of sentence-transformers in
/// `dir`: modules.json, which lists what follows the model, and the config.json
/// of the pooling, by default in 1_Pooling. It is kLastPooling if neither is
/// there. Throws Error if a file is invalid.
std::string readPooling(const std::filesystem::path &dir);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_POOLING_H
