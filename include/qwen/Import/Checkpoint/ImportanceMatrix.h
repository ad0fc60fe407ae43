//===- ImportanceMatrix.h - Importance matrices of llama.cpp ----*- C++ -*-===//
//
// The mean squares of the inputs of a model's products, which llama-imatrix
// writes: a GGUF file, or before 2025 a file of its own (.dat).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_IMPORTANCEMATRIX_H
#define QWEN_IMPORT_CHECKPOINT_IMPORTANCEMATRIX_H

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// By the name of a matrix in a GGUF file, such as "blk.0.attn_q.weight", the
/// mean square of each of its inputs, of one expert after another. They are
/// finite and not negative. An expert that no token chose has ones.
using ImportanceMatrix = std::map<std::string, std::vector<float>, std::less<>>;

/// Parses a whole file, whose path is `path`. Throws Error for a file that is
/// neither form, ends early, has a row twice, or a number that is negative or
/// not finite.
ImportanceMatrix parseImportanceMatrix(std::span<const uint8_t> bytes,
                                       const std::string &path);

/// The same of a file. Throws Error if it cannot be read, too.
ImportanceMatrix readImportanceMatrix(const std::filesystem::path &file);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_IMPORTANCEMATRIX_H
