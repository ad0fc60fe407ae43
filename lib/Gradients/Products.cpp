//===- Products.cpp - Products of rows and matrices -----------------------===//

#include "qwen/Gradients/Products.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Quantizers/PanelProducts.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cstring>

using namespace qwen;

/// Panels of either side that a thread takes at a time, and the length of a
/// chain of fma: both sides fit in 256 KiB of a cache.
static constexpr int64_t kBlockPanels = 8, kChain = 256;

ProductSide::ProductSide(int64_t count, int64_t length)
    : count(count), length(length),
      values(static_cast<size_t>(ceilDiv(count, kPanel) * kPanel * length)) {}

int64_t ProductSide::panels() const { return ceilDiv(count, kPanel); }

const float *ProductSide::panel(int64_t i) const {
  return values.data() + i * kPanel * length;
}

ProductSide ProductSide::ofRows(const MatrixView &matrix, unsigned threads) {
  ProductSide side(matrix.rows, matrix.columns);
  parallelFor(
      static_cast<size_t>(side.panels()), threads, [&](size_t i, unsigned) {
        const int64_t first = static_cast<int64_t>(i) * kPanel;
        transposeRows(matrix.values + first * matrix.stride, matrix.stride,
                      std::min(kPanel, matrix.rows - first), matrix.columns,
                      side.values.data() + first * side.length);
      });
  return side;
}

ProductSide ProductSide::ofColumns(const MatrixView &matrix, unsigned threads) {
  ProductSide side(matrix.columns, matrix.rows);
  parallelFor(static_cast<size_t>(side.panels()), threads,
              [&](size_t i, unsigned) {
                const int64_t first = static_cast<int64_t>(i) * kPanel;
                const int64_t some = std::min(kPanel, matrix.columns - first);
                float *to = side.values.data() + first * side.length;
                for (int64_t row = 0; row < matrix.rows; ++row)
                  std::memcpy(to + row * kPanel,
                              matrix.values + row * matrix.stride + first,
                              static_cast<size_t>(some) * sizeof(float));
              });
  return side;
}

/// addProduct() for the block of panels from `row` of `a` and `column` of `b`
/// on.
static void addBlock(const ProductSide &a, const ProductSide &b, int64_t row,
                     int64_t column, float *c, int64_t stride) {
  constexpr int64_t kWidth = kBlockPanels * kPanel;
  float sums[kWidth * kWidth] = {};
  const int64_t rows = std::min(kBlockPanels, a.panels() - row);
  const int64_t columns = std::min(kBlockPanels, b.panels() - column);
  for (int64_t first = 0; first < a.depth(); first += kChain) {
    const int64_t depth = std::min(kChain, a.depth() - first);
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i)
        addPanels(a.panel(row + i) + first * kPanel,
                  b.panel(column + j) + first * kPanel, depth,
                  sums + (i * kWidth + j) * kPanel, kWidth);
  }
  const int64_t top = row * kPanel, left = column * kPanel;
  for (int64_t i = 0; i < std::min(rows * kPanel, a.vectors() - top); ++i)
    for (int64_t j = 0; j < std::min(columns * kPanel, b.vectors() - left); ++j)
      c[(top + i) * stride + left + j] += sums[i * kWidth + j];
}

void qwen::addProduct(const ProductSide &a, const ProductSide &b, float *c,
                      int64_t stride, unsigned threads) {
  // Threads share the panels of `b`, which is the larger side.
  const int64_t rows = ceilDiv(a.panels(), kBlockPanels);
  const int64_t columns = ceilDiv(b.panels(), kBlockPanels);
  parallelFor(static_cast<size_t>(rows * columns), threads,
              [&](size_t i, unsigned) {
                const auto block = static_cast<int64_t>(i);
                addBlock(a, b, block % rows * kBlockPanels,
                         block / rows * kBlockPanels, c, stride);
              });
}
