//===- Products.cpp - Linear and lm_head ----------------------------------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

namespace {
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

/// Activations of a product of integers. Tokens have no gap between them.
struct QuantizedInput : Quantized {
  QWEN_SPECIALISED void call(LinearQ8Fn *kernel, int64_t token,
                             const uint8_t *weights, const float *bias,
                             const float *residual, float *out, int64_t m,
                             int64_t stride, Range panels) const {
    const Quantized x = of(token);
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
} // namespace

/// Multiplies `tokens` with `panels`. Each tile takes the largest multiple of
/// its M that the tiles before it have left. Tokens are independent, so the
/// split never shows in the result.
template <typename Input, typename Fn>
QWEN_SPECIALISED static void multiplyTokens(const Input &input,
                                            const Product<Fn> &of, Range tokens,
                                            Range panels) {
  int64_t token = tokens.begin;
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < of.fixed.tileCount; ++i) {
    const auto [kernel, size] = of.fixed.tiles[i];
    const int64_t left = tokens.end - token, count = left - left % size;
    if (count > 0)
      input.call(kernel, token, of.weights, of.bias,
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
QWEN_SPECIALISED static void multiply(const Input &input, const Product<Fn> &of,
                                      Range range) {
  bool single = false;
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < of.fixed.tileCount; ++i)
    single |= of.fixed.tiles[i].m == of.m;
  const int64_t cached = of.fixed.cached / input.k, least = of.fixed.least;
  const int64_t panels = single ? range.end - range.begin
                                : std::max(cached - cached % least, least);
  const int64_t largest = of.fixed.tiles[0].m, reused = of.fixed.reused;
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
QWEN_SPECIALISED static void forPanels(const Context *context, int32_t thread,
                                       const LinearArguments &of, int64_t m,
                                       int64_t most, const Compute &compute) {
  // The divisions below take no instructions for a sign then.
  const int64_t k = of.k, panels = of.panels;
  __builtin_assume(k > 0);
  __builtin_assume(panels > 0);
  const int64_t together = m == 1 ? 1 : most;
  const int64_t least = std::max(32768 / kPanelOutputs / k, together);
  forStolenUnits(context, thread, of.op, panels, together, least,
                 [&](int64_t begin, int64_t end)
                     QWEN_SPECIALISED_LAMBDA { compute(Range{begin, end}); });
}

template <typename Input, typename Fn>
QWEN_SPECIALISED static void
linear(const Context *context, int32_t thread, const LinearArguments &of,
       const Input &input, const ProductInstance<Fn> &fixed) {
  const Product<Fn> product = {weightsAt<uint8_t>(context, of.weight),
                               weightsAt(context, of.bias),
                               of.residual < 0 ? nullptr
                                               : arenaAt(context, of.residual),
                               arenaAt(context, of.out.at),
                               context->tokens,
                               of.out.stride,
                               fixed};
  forPanels(context, thread, of, product.m, fixed.together,
            [&](Range range)
                QWEN_SPECIALISED_LAMBDA { multiply(input, product, range); });
}

template <typename Input, typename Fn>
QWEN_SPECIALISED static void
lmHead(const Context *context, int32_t thread, const LinearArguments &of,
       const Input &input, const ProductInstance<Fn> &fixed,
       CheckFiniteFn *check) {
  const Product<Fn> product = {weightsAt<uint8_t>(context, of.weight),
                               nullptr,
                               nullptr,
                               context->result,
                               context->rows,
                               of.out.stride,
                               fixed};
  forPanels(context, thread, of, product.m, fixed.together,
            [&](Range range) QWEN_SPECIALISED_LAMBDA {
              multiply(input, product, range);
              // Each thread tests the outputs that it wrote, in its cache.
              for (int64_t row = 0; row < product.m; ++row)
                flag(context, wantedToken(context, row), of.op,
                     check(product.out + row * product.stride +
                               range.begin * kPanelOutputs,
                           (range.end - range.begin) * kPanelOutputs));
            });
}

QWEN_ENTRY(LinearF32, Linear) {
  const LinearArguments of = arguments;
  linear(context, thread, of, FloatInput{arenaAt(context, of.in.at), of.k},
         fixed.product);
}

QWEN_ENTRY(LinearQ8, Linear) {
  const LinearArguments of = arguments;
  linear(context, thread, of, QuantizedInput{quantizedAt(context, of.in, of.k)},
         fixed.product);
}

QWEN_ENTRY(LmHeadF32, Linear) {
  const LinearArguments of = arguments;
  lmHead(context, thread, of, FloatInput{arenaAt(context, of.in.at), of.k},
         fixed.product, fixed.check);
}

QWEN_ENTRY(LmHeadQ8, Linear) {
  const LinearArguments of = arguments;
  lmHead(context, thread, of, QuantizedInput{quantizedAt(context, of.in, of.k)},
         fixed.product, fixed.check);
}
