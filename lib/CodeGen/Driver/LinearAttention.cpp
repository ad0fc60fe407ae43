//===- LinearAttention.cpp - Short convolution and gated delta rule -------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

QWEN_ENTRY void qwen::qwenDriverDeltaGates(
    const Context *context, int32_t thread, int64_t a, int64_t aStride,
    int64_t b, int64_t bStride, int64_t rate, int64_t bias, int64_t decay,
    int64_t decayStride, int64_t beta, int64_t betaStride, int64_t heads,
    int32_t /*op*/, DeltaGatesFn *kernel) {
  forUnits(context, thread, context->tokens, [&](int64_t token) {
    kernel(arenaAt(context, a) + token * aStride,
           arenaAt(context, b) + token * bStride, weightsAt(context, rate),
           weightsAt(context, bias), heads,
           arenaAt(context, decay) + token * decayStride,
           arenaAt(context, beta) + token * betaStride);
  });
}

/// Calls compute(first, count) for consecutive tokens of a sequence.
template <typename Compute>
QWEN_SPECIALISED static void forSequences(const Context *context,
                                          const Compute &compute) {
  for (int64_t token = 0, end; token < context->tokens; token = end) {
    for (end = token + 1; end < context->tokens; ++end)
      if (context->sequences[end] != context->sequences[token])
        break;
    compute(token, end - token);
  }
}

/// A unit is up to 64 channels of all tokens: a token's are side by side in
/// memory.
QWEN_ENTRY void qwen::qwenDriverShortConvolution(
    const Context *context, int32_t thread, int64_t in, int64_t inStride,
    int64_t weight, int64_t out, int64_t stride, int64_t channels,
    int64_t layer, int32_t /*op*/, int64_t cache, int64_t cacheStride,
    ShortConvolutionFn *kernel) {
  constexpr int64_t most = 64;
  forUnits(context, thread, ceilDiv(channels, most), [&](int64_t unit) {
    const int64_t first = unit * most;
    forSequences(context, [&](int64_t token, int64_t tokens) {
      kernel(arenaAt(context, in) + token * inStride + first, inStride,
             weightsAt(context, weight) + first * kConvolutionTaps, tokens,
             std::min(channels - first, most), channels,
             stateAt(context, token, cache, cacheStride, layer) + first,
             arenaAt(context, out) + token * stride + first, stride);
    });
  });
}

/// A unit is a value head and kDeltaColumns columns of its state, for all
/// tokens: they stay in the first cache.
QWEN_ENTRY void qwen::qwenDriverDeltaRule(
    const Context *context, int32_t thread, int64_t in, int64_t inStride,
    int64_t decay, int64_t decayStride, int64_t beta, int64_t betaStride,
    int64_t out, int64_t stride, int64_t layer, int32_t op, int64_t cache,
    int64_t cacheStride, int64_t keyHeads, int64_t keyDim, int64_t heads,
    int64_t valueDim, int64_t sharing, float scale, float *scratch,
    DeltaRuleFn *kernel) {
  const int64_t unitsOfHead = valueDim / kDeltaColumns;
  const int64_t keys = keyHeads * keyDim;
  forUnits(context, thread, heads * unitsOfHead, [&](int64_t unit) {
    const int64_t head = unit / unitsOfHead, column = unit * kDeltaColumns;
    forSequences(context, [&](int64_t token, int64_t tokens) {
      const float *x = arenaAt(context, in) + token * inStride;
      const float *q = x + head / sharing % keyHeads * keyDim;
      const int64_t finite = kernel(
          q, q + keys, x + 2 * keys + column, inStride,
          arenaAt(context, decay) + token * decayStride + head, decayStride,
          arenaAt(context, beta) + token * betaStride + head, betaStride,
          tokens, keyDim, scale,
          stateAt(context, token, cache, cacheStride, layer) + column * keyDim,
          arenaAt(context, out) + token * stride + column, stride, scratch);
      if (finite < tokens)
        flag(context, token + finite, op, 1);
    });
  });
}
