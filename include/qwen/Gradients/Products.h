//===- Products.h - Products of rows and matrices ---------------*- C++ -*-===//
//
// The products of a backward pass: of rows with a matrix, and of gradients with
// its transpose. Both are sums over panels (PanelProducts.h), so their bits are
// the same on each machine, and for any number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_GRADIENTS_PRODUCTS_H
#define QWEN_GRADIENTS_PRODUCTS_H

#include <cstdint>
#include <vector>

namespace qwen {

/// A matrix [rows][columns] in memory, whose rows are `stride` values apart.
struct MatrixView {
  const float *values;
  int64_t rows, columns, stride;
};

/// One side of a product: panels of 16 vectors of `depth` values.
class ProductSide {
public:
  /// The vectors are the rows of `matrix`.
  static ProductSide ofRows(const MatrixView &matrix, unsigned threads);
  /// The vectors are its columns.
  static ProductSide ofColumns(const MatrixView &matrix, unsigned threads);

  int64_t vectors() const { return count; }
  int64_t depth() const { return length; }
  /// Sixteen values of each of the `depth` places of vectors 16 * i to 16 * i +
  /// 15; 0 behind the last vector.
  const float *panel(int64_t i) const;
  int64_t panels() const;

private:
  ProductSide(int64_t count, int64_t length);

  int64_t count, length;
  std::vector<float> values;
};

/// c[i][j], whose rows are `stride` values apart, += the product of vector i of
/// `a` with vector j of `b`. Both have the same depth.
void addProduct(const ProductSide &a, const ProductSide &b, float *c,
                int64_t stride, unsigned threads);

} // namespace qwen

#endif // QWEN_GRADIENTS_PRODUCTS_H
