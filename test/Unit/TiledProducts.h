//===- TiledProducts.h - Products of activations in tiles -------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_TILEDPRODUCTS_H
#define QWEN_TEST_UNIT_TILEDPRODUCTS_H

#include "qwen/ABI/DriverABI.h"
#include "qwen/ABI/KernelOps.h"

#include <vector>

namespace qwen::test {

/// `multiple` tokens and more that lie in tiles.
constexpr TokenTiles tiledTokens(int64_t multiple, int64_t least,
                                 int64_t rest) {
  return {LayoutId(int64_t(ActivationLayout::TileLines)), Tokens(multiple),
          Tokens(least), Tokens(rest)};
}

/// The reference that linearOfTiles() calls on this thread.
inline thread_local LinearQ8Fn *tiledReference = nullptr;

/// Takes activations out of their tiles for a reference, which needs rows.
inline void linearOfTiles(const int8_t *q, const float *d, const int32_t *sums,
                          const uint8_t *weights, const float *bias,
                          const float *residual, float *out, int64_t m,
                          int64_t k, int64_t ld, int64_t panelBegin,
                          int64_t panelEnd) {
  constexpr ActivationLayoutInfo layout =
      activationLayout(ActivationLayout::TileLines);
  std::vector<int8_t> rows;
  std::vector<float> scales;
  for (int64_t token = 0; token < m; ++token) {
    for (int64_t i = 0; i < k; ++i)
      rows.push_back(q[layout.codeAt(token, i, k)]);
    for (int64_t i = 0; i < ceilDiv(k, kActivationBlock); ++i)
      scales.push_back(d[layout.scaleAt(token, i, k)]);
  }
  tiledReference(rows.data(), scales.data(), sums, weights, bias, residual, out,
                 m, k, ld, panelBegin, panelEnd);
}

/// The kernel of a product that takes `tokens` in tiles.
inline DriverTile<LinearQ8Fn> tiledProduct(LinearQ8Fn *reference,
                                           const TokenTiles &tokens) {
  tiledReference = reference;
  return {linearOfTiles, tokens};
}
/// Other products have none.
inline DriverTile<LinearF32Fn> tiledProduct(LinearF32Fn *kernel,
                                            const TokenTiles &) {
  return {kernel, {.multiple = Tokens(1), .least = Tokens(1)}};
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_TILEDPRODUCTS_H
