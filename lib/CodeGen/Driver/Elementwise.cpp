//===- Elementwise.cpp - Embedding, norms, quantization, SwiGLU -----------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

void qwen::qwenDriverBarrier(const Context *context, int32_t thread) {
  context->barrier(context->barrierState, thread);
}

[[gnu::noinline]] void qwen::qwenDriverTrace(const Context *context,
                                             int32_t thread, int32_t op) {
  if (context->trace)
    context->trace(context->traceState, thread, op);
}

bool qwen::qwenDriverWantHidden(const Context *context, int32_t) {
  return context->wantHidden != 0;
}

QWEN_ENTRY void qwen::qwenDriverEmbedding(const Context *context,
                                          int32_t thread, int64_t weight,
                                          int64_t out, int64_t stride,
                                          int64_t k, int32_t /*op*/,
                                          EmbedFn *kernel) {
  const auto *table = weightsAt<uint8_t>(context, weight);
  float *y = arenaAt(context, out);
  forUnits(context, thread, context->tokens, [&](int64_t token) {
    kernel(table, context->tokenIds[token], k, y + token * stride);
  });
}

QWEN_ENTRY void qwen::qwenDriverRopeTable(const Context *context,
                                          int32_t thread, int64_t frequencies,
                                          int64_t cos, int64_t cosStride,
                                          int64_t sin, int64_t sinStride,
                                          int64_t half, float scale,
                                          int32_t /*op*/, RopeTableFn *kernel) {
  const float *inverse = weightsAt(context, frequencies);
  forUnits(context, thread, context->tokens, [&](int64_t token) {
    float *c = arenaAt(context, cos) + token * cosStride;
    float *s = arenaAt(context, sin) + token * sinStride;
    kernel(context->positions[token], inverse, half, c, s);
    // YaRN. A few values a token: a kernel of its own would gain nothing.
    if (scale != 1)
      for (int64_t i = 0; i < half; ++i) {
        c[i] *= scale;
        s[i] *= scale;
      }
  });
}

/// Calls compute(i, token) for the thread's share of all tokens, or of the
/// wanted ones: result i is of token `token`.
template <typename Compute>
QWEN_SPECIALISED static void forTokens(const Context *context, int32_t thread,
                                       bool wanted, const Compute &compute) {
  forUnits(
      context, thread, wanted ? context->rows : context->tokens,
      [&](int64_t i) { compute(i, wanted ? wantedToken(context, i) : i); });
}

QWEN_ENTRY void
qwen::qwenDriverRmsNormF32(const Context *context, int32_t thread, int64_t in,
                           int64_t inStride, int64_t weight, int64_t out,
                           int64_t stride, int64_t k, float eps, bool wanted,
                           int32_t /*op*/, RmsNormF32Fn *kernel) {
  const float *x = arenaAt(context, in), *w = weightsAt(context, weight);
  float *y = arenaAt(context, out);
  forTokens(context, thread, wanted, [&](int64_t i, int64_t token) {
    kernel(x + token * inStride, w, k, eps, y + i * stride);
  });
}

QWEN_ENTRY void qwen::qwenDriverRmsNormQ8(
    const Context *context, int32_t thread, int64_t in, int64_t inStride,
    int64_t weight, int64_t out, int64_t stride, int64_t scales, int64_t sums,
    int64_t k, float eps, bool wanted, int32_t op, RmsNormQ8Fn *kernel) {
  const float *x = arenaAt(context, in), *w = weightsAt(context, weight);
  const Quantized y = quantizedAt(context, out, scales, sums, k);
  forTokens(context, thread, wanted, [&](int64_t i, int64_t token) {
    const auto [q, d, s, size] = y.at(i, stride);
    flag(context, token, op,
         kernel(x + token * inStride, w, size, eps, q, d, s));
  });
}

QWEN_ENTRY void qwen::qwenDriverHiddenRows(const Context *context,
                                           int32_t thread, int64_t in,
                                           int64_t inStride, int64_t weight,
                                           int64_t k, float eps, int32_t op,
                                           RmsNormF32Fn *norm,
                                           CheckFiniteFn *check) {
  const float *x = arenaAt(context, in), *w = weightsAt(context, weight);
  forTokens(context, thread, true, [&](int64_t row, int64_t token) {
    float *y = context->result + row * k;
    norm(x + token * inStride, w, k, eps, y);
    flag(context, token, op, check(y, k));
  });
}

QWEN_ENTRY void qwen::qwenDriverHeadNorm(const Context *context, int32_t thread,
                                         int64_t in, int64_t inStride,
                                         int64_t weight, int64_t out,
                                         int64_t stride, int64_t k, float eps,
                                         int64_t headDim, int32_t /*op*/,
                                         RmsNormF32Fn *kernel) {
  const float *x = arenaAt(context, in), *w = weightsAt(context, weight);
  float *y = arenaAt(context, out);
  forUnits(context, thread, context->tokens, [&](int64_t token) {
    for (int64_t i = 0; i < k; i += headDim)
      kernel(x + token * inStride + i, w, headDim, eps, y + token * stride + i);
  });
}

QWEN_ENTRY void qwen::qwenDriverQuantize(const Context *context, int32_t thread,
                                         int64_t in, int64_t inStride,
                                         int64_t out, int64_t stride,
                                         int64_t scales, int64_t sums,
                                         int64_t k, int32_t op,
                                         QuantizeQ8Fn *kernel) {
  const float *x = arenaAt(context, in);
  const Quantized y = quantizedAt(context, out, scales, sums, k);
  forUnits(context, thread, context->tokens, [&](int64_t token) {
    const auto [q, d, s, size] = y.at(token, stride);
    flag(context, token, op, kernel(x + token * inStride, size, q, d, s));
  });
}

namespace {
/// An input of an op with two.
struct Input {
  const float *values;
  int64_t stride;
};
} // namespace

/// Calls compute(token, first, size, a, b) for the thread's share of the blocks
/// of n values of each token. A call takes blocks of one token, up to
/// kStackValues: `size` values from value `first` on, at `a` and `b` in the
/// inputs.
template <typename Compute>
QWEN_SPECIALISED static void forBlocks(const Context *context, int32_t thread,
                                       int64_t n, Input x, Input y,
                                       const Compute &compute) {
  const int64_t blocks = ceilDiv(n, kActivationBlock);
  const Range range = shareOf(context, thread, context->tokens * blocks);
  for (int64_t unit = range.begin; unit < range.end;) {
    const int64_t token = unit / blocks, block = unit % blocks;
    const int64_t count = std::min(
        {range.end - unit, blocks - block, kStackValues / kActivationBlock});
    const int64_t first = block * kActivationBlock;
    compute(token, first, std::min(n - first, count * kActivationBlock),
            x.values + token * x.stride + first,
            y.values + token * y.stride + first);
    unit += count;
  }
}

/// Calls compute(a, b, size, result) for the blocks of each call.
template <typename Compute>
QWEN_SPECIALISED static void
combineF32(const Context *context, int32_t thread, Input x, Input y,
           int64_t out, int64_t stride, int64_t n, const Compute &compute) {
  float *result = arenaAt(context, out);
  forBlocks(context, thread, n, x, y,
            [&](int64_t token, int64_t first, int64_t size, const float *a,
                const float *b) {
              compute(a, b, size, result + token * stride + first);
            });
}

/// Calls compute(a, b, size, codes, scales, sums) for the blocks of each call,
/// and flags the token if that returns not 0.
template <typename Compute>
QWEN_SPECIALISED static void
combineQ8(const Context *context, int32_t thread, Input x, Input y,
          const Quantized &result, int64_t stride, int64_t n, int32_t op,
          const Compute &compute) {
  forBlocks(context, thread, n, x, y,
            [&](int64_t token, int64_t first, int64_t size, const float *a,
                const float *b) {
              const auto [q, d, s, all] = result.at(token, stride);
              flag(context, token, op,
                   compute(a, b, size, q + first, d + first / kActivationBlock,
                           s + first / kGroup));
            });
}

QWEN_ENTRY void qwen::qwenDriverSwiGluF32(const Context *context,
                                          int32_t thread, int64_t gate,
                                          int64_t gateStride, int64_t up,
                                          int64_t upStride, int64_t out,
                                          int64_t stride, int64_t n,
                                          int32_t /*op*/, SwiGluF32Fn *kernel) {
  combineF32(context, thread, {arenaAt(context, gate), gateStride},
             {arenaAt(context, up), upStride}, out, stride, n, kernel);
}

QWEN_ENTRY void qwen::qwenDriverSwiGluQ8(
    const Context *context, int32_t thread, int64_t gate, int64_t gateStride,
    int64_t up, int64_t upStride, int64_t out, int64_t stride, int64_t scales,
    int64_t sums, int64_t n, int32_t op, SwiGluQ8Fn *kernel) {
  combineQ8(context, thread, {arenaAt(context, gate), gateStride},
            {arenaAt(context, up), upStride},
            quantizedAt(context, out, scales, sums, n), stride, n, op, kernel);
}

QWEN_ENTRY void qwen::qwenDriverGateF32(const Context *context, int32_t thread,
                                        int64_t in, int64_t inStride,
                                        int64_t gate, int64_t gateStride,
                                        int64_t out, int64_t stride, int64_t n,
                                        int32_t /*op*/, SigmoidGateFn *kernel) {
  combineF32(context, thread, {arenaAt(context, in), inStride},
             {arenaAt(context, gate), gateStride}, out, stride, n, kernel);
}

QWEN_ENTRY void qwen::qwenDriverGateQ8(const Context *context, int32_t thread,
                                       int64_t in, int64_t inStride,
                                       int64_t gate, int64_t gateStride,
                                       int64_t out, int64_t stride,
                                       int64_t scales, int64_t sums, int64_t n,
                                       int32_t op, SigmoidGateFn *kernel,
                                       QuantizeQ8Fn *quantize) {
  combineQ8(context, thread, {arenaAt(context, in), inStride},
            {arenaAt(context, gate), gateStride},
            quantizedAt(context, out, scales, sums, n), stride, n, op,
            [&](const float *x, const float *g, int64_t size, int8_t *q,
                float *d, int32_t *s) {
              float gated[kStackValues];
              kernel(x, g, size, gated);
              return quantize(gated, size, q, d, s);
            });
}
