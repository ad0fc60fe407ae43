//===- PanelProducts.cpp - Products of panels of 16 columns ---------------===//

#include "qwen/Quantizers/PanelProducts.h"

#include "EightFloats.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>

using namespace qwen;

/// Rows `first` to `first` + Rows - 1 of addPanels. Their sums are all in
/// registers: at most twelve of AVX2's sixteen.
template <int64_t Rows>
static void addRows(const float *a, const float *b, int64_t depth, float *c,
                    int64_t stride) {
  Lanes sums[Rows][2] = {};
  for (int64_t i = 0; i < depth; ++i, a += kPanel, b += kPanel) {
    const Lanes low = load(b), high = load(b + kLanes);
    for (int64_t row = 0; row < Rows; ++row) {
      const Lanes factor = splat(a[row]);
      sums[row][0] = fma(factor, low, sums[row][0]);
      sums[row][1] = fma(factor, high, sums[row][1]);
    }
  }
  for (int64_t row = 0; row < Rows; ++row)
    for (int64_t half = 0; half < kPanel; half += kLanes) {
      float *to = c + row * stride + half;
      store(load(to) + sums[row][half / kLanes], to);
    }
}

void qwen::addPanels(const float *a, const float *b, int64_t depth, float *c,
                     int64_t stride) {
  addRows<6>(a, b, depth, c, stride);
  addRows<5>(a + 6, b, depth, c + 6 * stride, stride);
  addRows<5>(a + 11, b, depth, c + 11 * stride, stride);
}

/// Panels along a side of a tile of a triangle, and rows at a time: a tile and
/// both panels' rows fit in 512 KiB of a cache.
static constexpr int64_t kTile = 8, kDepth = 256;

void qwen::addLowerTriangle(const float *a, const float *b, int64_t panels,
                            int64_t depth, float *c, int64_t stride,
                            unsigned threads) {
  const int64_t tiles = ceilDiv(panels, kTile);
  parallelFor(static_cast<size_t>(tiles * (tiles + 1) / 2), threads,
              [&](size_t number, unsigned) {
                int64_t row = 0, column = static_cast<int64_t>(number);
                while (column > row)
                  column -= ++row;
                for (int64_t first = 0; first < depth; first += kDepth) {
                  const int64_t rows = std::min(kDepth, depth - first);
                  for (int64_t j = column * kTile;
                       j < std::min((column + 1) * kTile, panels); ++j)
                    for (int64_t i = std::max(row * kTile, j);
                         i < std::min((row + 1) * kTile, panels); ++i)
                      addPanels(a + (i * depth + first) * kPanel,
                                b + (j * depth + first) * kPanel, rows,
                                c + (i * stride + j) * kPanel, stride);
                }
              });
}

void qwen::transposeRows(const float *from, int64_t stride, int64_t rows,
                         int64_t columns, float *panel) {
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < kPanel; ++row)
      panel[column * kPanel + row] =
          row < rows ? from[row * stride + column] : 0.0f;
}
