//===- ExpertFactors.h - Updates of the matrices of experts -----*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_ADAPTERS_EXPERTFACTORS_H
#define QWEN_LIB_IMPORT_ADAPTERS_EXPERTFACTORS_H

#include "qwen/Weights/Adapted.h"

#include <cstdint>

namespace qwen {

/// The two tensors of an update of the matrices of all experts of a layer.
class ExpertFactors {
public:
  /// `left` is [experts, outputs, rank] (MLX, GGUF) or [outputs, rank *
  /// experts] with the columns of an expert `experts` apart (PEFT); `right` is
  /// [experts, rank, k] or [experts * rank, k]. Throws Error, which names the
  /// tensor, for other shapes and types.
  ExpertFactors(const StoredTensor &left, const StoredTensor &right,
                int64_t experts, const WeightShape &matrix);

  int64_t rank() const { return ranks; }
  /// The update of `count` outputs from `first` on of an expert.
  LowRankUpdate of(int64_t expert, int64_t first, int64_t count,
                   double scale) const;

private:
  const StoredTensor left, right;
  const int64_t experts;
  const int64_t ranks;
};

} // namespace qwen

#endif // QWEN_LIB_IMPORT_ADAPTERS_EXPERTFACTORS_H
