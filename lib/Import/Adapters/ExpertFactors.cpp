//===- ExpertFactors.cpp - Updates of the matrices of experts -------------===//

#include "ExpertFactors.h"

#include "Adapter.h"

#include "qwen/Support/Error.h"

using namespace qwen;

/// The rank of `right`. Throws Error if it has none.
static int64_t rankOf(const StoredTensor &right, int64_t experts) {
  const std::vector<int64_t> &shape = right.shape;
  if (shape.size() == 3)
    return shape[1];
  if (shape.size() == 2 && shape[0] % experts == 0)
    return shape[0] / experts;
  throw Error(
      describeTensor(right) + " has shape " + part::found(shapeText(shape)) +
      " when " +
      part::needed("rows for each of " + std::to_string(experts) + " experts") +
      " are needed");
}

ExpertFactors::ExpertFactors(const StoredTensor &leftTensor,
                             const StoredTensor &rightTensor,
                             int64_t expertCount, const WeightShape &matrix)
    : left(leftTensor), right(rightTensor), experts(expertCount),
      ranks(rankOf(right, experts)) {
  const int64_t outputs = matrix.sizes[0], k = matrix.sizes[1];
  checkFactor(right, right.shape.size() == 3
                         ? WeightShape{{experts, ranks, k}}
                         : WeightShape{{experts * ranks, k}});
  checkFactor(left, left.shape.size() == 3
                        ? WeightShape{{experts, outputs, ranks}}
                        : WeightShape{{outputs, ranks * experts}});
}

/// `rows` rows of `columns` values of a tensor, from its row `first` on.
static StoredTensor rowsOf(const StoredTensor &tensor, int64_t first,
                           int64_t rows, int64_t columns) {
  StoredTensor some = tensor;
  const auto row = static_cast<size_t>(storedBytes(*tensor.type, columns));
  some.shape = {rows, columns};
  some.bytes = tensor.bytes.subspan(static_cast<size_t>(first) * row,
                                    static_cast<size_t>(rows) * row);
  return some;
}

LowRankUpdate ExpertFactors::of(int64_t expert, int64_t first, int64_t count,
                                double scale) const {
  StoredMatrix outputs;
  if (left.shape.size() == 3) {
    outputs.tensor = rowsOf(left, expert * left.shape[1] + first, count, ranks);
  } else {
    outputs.tensor = rowsOf(left, first, count, ranks * experts);
    outputs.columnStep = experts;
    outputs.firstColumn = expert;
  }
  return {outputs,
          {rowsOf(right, expert * ranks, ranks, right.shape.back())},
          scale};
}
