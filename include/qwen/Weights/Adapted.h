//===- Adapted.h - Weights that an adapter changes --------------*- C++ -*-===//
//
// Sources over the weights of a base model (docs/numerics.md). A matrix of
// integers has none any more, except by QA-LoRA; it has the format that would
// keep them.
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
  /// A tensor of rank 2 and a type of floats.
  StoredTensor tensor;
  bool isTransposed = false;
  /// The distance of its columns in the tensor, and its first one there: others
  /// lie between them. 1 and 0 if it is transposed.
  int64_t columnStep = 1, firstColumn = 0;

  int64_t rows() const { return tensor.shape[isTransposed ? 1 : 0]; }
  int64_t columns() const {
    return tensor.shape[isTransposed ? 0 : 1] / columnStep;
  }
  /// Reads `count` rows from `first` on, one after another.
  void read(int64_t first, int64_t count, float *values) const;
};

/// W += scale * left right (LoRA: Hu et al. 2021, arXiv 2106.09685).
struct LowRankUpdate {
  /// [outputs][rank] and [rank][K / group].
  StoredMatrix left, right;
  double scale;
  /// The columns of W that get the same number, because their sum is an input
  /// (QA-LoRA: Xu et al. 2023, arXiv 2309.14717). Divides K.
  int64_t group = 1;
  /// A norm for each output, to which its K values are scaled then (DoRA: Liu
  /// et al. 2024, arXiv 2402.09353).
  std::optional<StoredTensor> norms = {};

  uint64_t bytes() const {
    return left.tensor.bytes.size() + right.tensor.bytes.size();
  }
  /// scale * left right of `count` outputs from `first` on, one after another.
  /// Each number is summed in double, in the order of the rank.
  std::vector<double> products(int64_t first, int64_t count) const;
};

/// The columns of `source` that follow each other and share the scale and the
/// offset of their integers, or 0.
int64_t groupOf(const WeightSource &source);

/// `source`, a matrix, with an update of its sizes; each value is rounded once.
/// An update of whole groups of integers (groupOf) changes no integer: it
/// changes zero points or minimums, and keep() rounds them to f16.
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
