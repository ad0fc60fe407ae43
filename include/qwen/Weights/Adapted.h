//===- Adapted.h - Weights that an adapter changes --------------*- C++ -*-===//
//
// Sources over the weights of a base model (docs/numerics.md). A matrix of
// integers has none any more; it has the format that would keep them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_WEIGHTS_ADAPTED_H
#define QWEN_WEIGHTS_ADAPTED_H

#include "qwen/Weights/StoredTensor.h"
#include "qwen/Weights/WeightSource.h"

#include <optional>

namespace qwen {

/// A matrix of floats in a file, perhaps by its columns.
struct StoredMatrix {
  /// Of rank 2 and a type of floats.
  StoredTensor tensor;
  bool isTransposed = false;

  int64_t rows() const { return tensor.shape[isTransposed ? 1 : 0]; }
  int64_t columns() const { return tensor.shape[isTransposed ? 0 : 1]; }
  /// Reads `count` rows from `first` on, one after another.
  void read(int64_t first, int64_t count, float *values) const;
};

/// W += scale * left right (LoRA: Hu et al. 2021, arXiv 2106.09685).
struct LowRankUpdate {
  /// [outputs][rank] and [rank][K].
  StoredMatrix left, right;
  double scale;
  /// A norm for each output, to which its K values are scaled then (DoRA: Liu
  /// et al. 2024, arXiv 2402.09353).
  std::optional<StoredTensor> norms = {};
};

/// `source`, a matrix, with an update of its sizes. Each value is summed in
/// double, in the order of the rank, and rounded once.
WeightSourcePtr makeLora(WeightSourcePtr source, LowRankUpdate update);

/// `source` + scale * `addend`, a tensor of floats of the same shape, rounded
/// once.
WeightSourcePtr makeSum(WeightSourcePtr source, const StoredTensor &addend,
                        double scale);

/// `values`, a tensor of floats of the shape of `source`, in its place.
WeightSourcePtr makeReplaced(const WeightSourcePtr &source,
                             const StoredTensor &values);

} // namespace qwen

#endif // QWEN_WEIGHTS_ADAPTED_H
