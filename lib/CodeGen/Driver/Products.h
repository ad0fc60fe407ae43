//===- Products.h - A matrix times tokens -----------------------*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_DRIVER_PRODUCTS_H
#define QWEN_LIB_CODEGEN_DRIVER_PRODUCTS_H

#include "Places.h"

namespace qwen::driver {

/// Activations of a product of floats.
struct FloatInput {
  const float *x;
  int64_t k;

  /// Calls `kernel` for the tokens from `token` on.
  QWEN_SPECIALISED void call(LinearF32Fn *kernel, int64_t token,
                             const uint8_t *weights, const float *bias,
                             const float *residual, float *out, int64_t m,
                             int64_t stride, Range panels) const {
    kernel(x + token * k, weights, bias, residual, out, m, k, stride,
           panels.begin, panels.end);
  }
};

/// Activations of a product of integers.
struct QuantizedInput : Quantized {
  QWEN_SPECIALISED void call(LinearQ8Fn *kernel, int64_t token,
                             const uint8_t *weights, const float *bias,
                             const float *residual, float *out, int64_t m,
                             int64_t stride, Range panels) const {
    const Quantized x = from(token);
    kernel(x.codes, x.scales, x.sums, weights, bias, residual, out, m, k,
           stride, panels.begin, panels.end);
  }
};

/// Operands of a product beside its activations, and its result.
template <typename Fn> struct Product {
  const uint8_t *weights;
  const float *bias, *residual;
  float *out;
  int64_t m, stride;
  ProductInstance<Fn> fixed;
};

/// Values along K of the panels that stay in a core's first and second cache
/// between kernels: 64 KiB and 1 MiB as int8.
inline constexpr int64_t kFirstCacheLength = 4096, kSecondCacheLength = 65536;

/// Multiplies `tokens` with `panels`. Tokens are independent, so the split
/// never shows in the result.
template <typename Input, typename Fn>
QWEN_SPECIALISED void multiplyTokens(const Input &input, const Product<Fn> &of,
                                     Range tokens, Range panels) {
  int64_t token = tokens.begin;
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < of.fixed.tileCount; ++i) {
    const DriverTile<Fn> &tile = of.fixed.tiles[i];
    const int64_t count = tile.tokens.take(tokens.end - token);
    if (count > 0)
      input.call(tile.kernel, token, of.weights, of.bias,
                 of.residual ? of.residual + token * of.stride : nullptr,
                 of.out + token * of.stride, count, of.stride, panels);
    token += count;
  }
}

/// Multiplies all tokens with the panels of `range`. The outer loop takes as
/// many panels as fit in a core's cache, so that several calls read memory once
/// (docs/decisions/0006-small-batches.md). The inner loop takes as many tokens
/// as fit, because a kernel reads its tokens once a panel. Tokens that are one
/// tile take all panels at once, so that their streams are long.
template <typename Input, typename Fn>
QWEN_SPECIALISED void multiply(const Input &input, const Product<Fn> &of,
                               Range range) {
  bool single = false;
  int64_t largest = 0;
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < of.fixed.tileCount; ++i) {
    const DriverTile<Fn> &tile = of.fixed.tiles[i];
    single |= tile.tokens.multiple == of.m && tile.tokens.take(of.m) == of.m;
    largest = std::max<int64_t>(largest, tile.tokens.multiple);
  }
  // `cached` is for calls in which the first tile multiplies all tokens. Other
  // kernels read the same panels again, which then must be in a cache.
  const int64_t ofFirst = of.fixed.tiles[0].tokens.take(of.m);
  const int64_t most = ofFirst == of.m ? int64_t{of.fixed.cached}
                       : ofFirst == 0  ? kFirstCacheLength
                                       : kSecondCacheLength;
  const int64_t cached = std::min<int64_t>(of.fixed.cached, most) / input.k,
                least = of.fixed.least;
  const int64_t panels = single ? range.end - range.begin
                                : std::max(cached - cached % least, least);
  const int64_t reused = of.fixed.reused;
  const int64_t tokens =
      reused == 0 ? of.m
                  : std::max(reused / input.k / largest * largest, largest);
  for (int64_t panel = range.begin; panel < range.end; panel += panels)
    for (int64_t token = 0; token < of.m; token += tokens)
      multiplyTokens(input, of, {token, std::min(token + tokens, of.m)},
                     {panel, std::min(panel + panels, range.end)});
}

/// Calls compute(range) for the thread's panels. A thread steals at least
/// `most` panels, which share work (1 of a single token), and at least 32768
/// weights: a shorter stream is not worth its start.
template <typename Compute>
QWEN_SPECIALISED void forPanels(const Context *context, int32_t thread, OpId op,
                                int64_t k, int64_t panels, int64_t m,
                                int64_t most, const Compute &compute) {
  // The divisions below take no instructions for a sign then.
  __builtin_assume(k > 0);
  __builtin_assume(panels > 0);
  const int64_t together = m == 1 ? 1 : most;
  const int64_t least = std::max(32768 / kPanelOutputs / k, together);
  forStolenUnits(context, thread, op, panels, together, least,
                 [&](int64_t begin, int64_t end)
                     QWEN_SPECIALISED_LAMBDA { compute(Range{begin, end}); });
}

} // namespace qwen::driver

#endif // QWEN_LIB_CODEGEN_DRIVER_PRODUCTS_H
