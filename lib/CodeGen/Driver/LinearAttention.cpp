//===- LinearAttention.cpp - Short convolution and gated delta rule -------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

QWEN_ENTRY(DeltaGates, DeltaGates) {
  const DeltaGatesArguments of = arguments;
  const FloatRows a = rowsAt(context, of.a), b = rowsAt(context, of.b),
                  decay = rowsAt(context, of.decay),
                  beta = rowsAt(context, of.beta);
  const float *rate = weightsAt(context, of.rate),
              *bias = weightsAt(context, of.bias);
  forUnits(context, thread, context->tokens,
           [&](int64_t token) QWEN_SPECIALISED_LAMBDA {
             fixed.kernel(a.of(token), b.of(token), rate, bias, of.heads,
                          decay.of(token), beta.of(token));
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
QWEN_ENTRY(ShortConvolution, ShortConvolution) {
  constexpr int64_t most = 64;
  const ShortConvolutionArguments of = arguments;
  const FloatRows in = rowsAt(context, of.in), out = rowsAt(context, of.out);
  const float *taps = weightsAt(context, of.weight);
  forUnits(context, thread, ceilDiv(of.channels, most),
           [&](int64_t unit) QWEN_SPECIALISED_LAMBDA {
             const int64_t first = unit * most;
             forSequences(context, [&](int64_t token,
                                       int64_t tokens) QWEN_SPECIALISED_LAMBDA {
               fixed.kernel(in.of(token) + first, in.stride,
                            taps + first * kConvolutionTaps, tokens,
                            std::min(of.channels - first, most), of.channels,
                            stateAt(context, token, fixed.cache,
                                    fixed.cacheStride, of.layer) +
                                first,
                            out.of(token) + first, out.stride);
             });
           });
}

/// A unit is a value head and kDeltaColumns columns of its state, for all
/// tokens: they stay in the first cache.
QWEN_ENTRY(DeltaRule, DeltaRule) {
  const DeltaRuleArguments of = arguments;
  const FloatRows in = rowsAt(context, of.in),
                  decay = rowsAt(context, of.decay),
                  beta = rowsAt(context, of.beta),
                  out = rowsAt(context, of.out);
  const int64_t unitsOfHead = fixed.valueDim / kDeltaColumns;
  const int64_t keys = fixed.keyHeads * fixed.keyDim;
  forUnits(context, thread, fixed.heads * unitsOfHead,
           [&](int64_t unit) QWEN_SPECIALISED_LAMBDA {
             const int64_t head = unit / unitsOfHead,
                           column = unit * kDeltaColumns;
             forSequences(context, [&](int64_t token,
                                       int64_t tokens) QWEN_SPECIALISED_LAMBDA {
               const float *x = in.of(token);
               const float *q =
                   x + head / fixed.sharing % fixed.keyHeads * fixed.keyDim;
               const int64_t finite = fixed.kernel(
                   q, q + keys, x + 2 * keys + column, in.stride,
                   decay.of(token) + head, decay.stride, beta.of(token) + head,
                   beta.stride, tokens, fixed.keyDim, fixed.scale,
                   stateAt(context, token, fixed.cache, fixed.cacheStride,
                           of.layer) +
                       column * fixed.keyDim,
                   out.of(token) + column, out.stride, fixed.scratch);
               if (finite < tokens)
                 flag(context, token + finite, of.op, 1);
             });
           });
}
