//===- Importance.h - An importance matrix of a model -----------*- C++ -*-===//

#ifndef QWEN_LIB_COMPILER_IMPORTANCE_H
#define QWEN_LIB_COMPILER_IMPORTANCE_H

#include "qwen/Import/Checkpoint/ImportanceMatrix.h"
#include "qwen/Import/Checkpoint/ModelConfig.h"
#include "qwen/Weights/WeightSource.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace qwen {

/// The rows of an importance matrix by the names of a model's matrices.
class Importance {
public:
  /// Reads `file`. Throws InputError.
  Importance(const std::filesystem::path &file, const ModelConfig &config);

  /// How much errors of the columns of a matrix count (QuantizerFactors), with
  /// a mean of 1 in each expert, or null without a row. Throws InputError if
  /// the row is of another model: one of another width.
  std::shared_ptr<const std::vector<float>> of(const std::string &matrix,
                                               const WeightShape &shape);

  /// Throws InputError if no matrix had a row, Error if none was asked for.
  void requireRows() const;
  /// A line about the matrices without a row, or "".
  std::string missing() const;

private:
  /// The name of the row of a matrix.
  std::string rowOf(const std::string &matrix) const;
  /// Whether the columns of a matrix have an order of their own in GGUF files.
  bool isReordered(const std::string &matrix) const;

  const std::string file;
  const ModelConfig &config;
  const ImportanceMatrix rows;
  size_t found = 0;
  std::vector<std::string> without;
};

} // namespace qwen

#endif // QWEN_LIB_COMPILER_IMPORTANCE_H
