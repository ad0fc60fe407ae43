//===- LinearAttention.cpp - Short convolution and gated delta rule -------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

QWEN_ENTRY(DeltaGates, DeltaGates) {
  const DeltaGatesArguments of = arguments;
  const Floats a = floatsAt(context, of.a), b = floatsAt(context, of.b),
               decay = floatsAt(context, of.decay),
               beta = floatsAt(context, of.beta);
  const float *rate = weightsAt(context, of.rate),
              *bias = weightsAt(context, of.bias);
  forUnits(context, thread, context->counts[of.count].number,
           [&](int64_t token) QWEN_SPECIALISED_LAMBDA {
             fixed.kernel(a.of(token), b.of(token), rate, bias, of.heads,
                          decay.of(token), beta.of(token));
           });
}

/// Whether the sequence of `token` keeps several states.
static bool keepsStates(const Context *context, int64_t token,
                        Tokens stepBack) {
  const int32_t *rows = stateRowsOf(context, token, stepBack + 1);
  return rows[0] != rows[1];
}

/// Calls compute(first, count, after) for consecutive tokens of a sequence,
/// which read and write the state after `after` tokens from `first` on
/// (stateAt). In a sequence that keeps several states, each of the last
/// `stepBack` tokens has a call of its own, so that the state before it
/// remains: copy(first, after) makes the state of a call from the one before
/// `first`.
template <typename Copy, typename Compute>
QWEN_SPECIALISED static void forSequences(const Context *context,
                                          Tokens stepBack, const Copy &copy,
                                          const Compute &compute) {
  for (int64_t token = 0, end; token < context->tokens(); token = end) {
    for (end = token + 1; end < context->tokens(); ++end)
      if (context->sequences[end] != context->sequences[token])
        break;
    if (stepBack == 0 || !keepsStates(context, token, stepBack)) {
      compute(token, end - token, 0);
      continue;
    }
    for (int64_t first = token, count; first < end; first += count) {
      count = std::max<int64_t>(1, end - first - stepBack);
      copy(first, count);
      compute(first, count, count);
    }
  }
}

/// A unit is up to 64 channels of all tokens, because a token's channels are
/// side by side in memory.
QWEN_ENTRY(ShortConvolution, ShortConvolution) {
  constexpr int64_t most = 64;
  const ShortConvolutionArguments of = arguments;
  const Floats in = floatsAt(context, of.in), out = floatsAt(context, of.out);
  const float *taps = weightsAt(context, of.weight);
  const auto stateOf = [&](int64_t token,
                           int64_t after) QWEN_SPECIALISED_LAMBDA {
    return stateAt(context, token, fixed.cache, fixed.cacheStride,
                   fixed.stepBack, of.layer, after);
  };
  forUnits(context, thread, ceilDiv(of.channels, most),
           [&](int64_t unit) QWEN_SPECIALISED_LAMBDA {
             const int64_t first = unit * most;
             const auto copy = [&](int64_t token,
                                   int64_t after) QWEN_SPECIALISED_LAMBDA {
               for (int64_t tap = 0; tap < kConvolutionTaps - 1; ++tap)
                 copyValues(stateOf(token, 0) + tap * of.channels + first,
                            std::min(of.channels - first, most),
                            stateOf(token, after) + tap * of.channels + first);
             };
             forSequences(context, fixed.stepBack, copy,
                          [&](int64_t token, int64_t tokens, int64_t after)
                              QWEN_SPECIALISED_LAMBDA {
                                fixed.kernel(
                                    in.of(token) + first, in.stride,
                                    taps + first * kConvolutionTaps, tokens,
                                    std::min(of.channels - first, most),
                                    of.channels, stateOf(token, after) + first,
                                    out.of(token) + first, out.stride);
                              });
           });
}

/// A unit is kDeltaColumns columns of the state of a value head, for all
/// tokens, so that the columns stay in the first cache.
QWEN_ENTRY(DeltaRule, DeltaRule) {
  const DeltaRuleArguments of = arguments;
  const Floats in = floatsAt(context, of.in),
               decay = floatsAt(context, of.decay),
               beta = floatsAt(context, of.beta),
               out = floatsAt(context, of.out);
  const int64_t unitsOfHead = fixed.valueDim / kDeltaColumns;
  const int64_t keys = fixed.keyHeads * fixed.keyDim;
  const auto stateOf = [&](int64_t token,
                           int64_t after) QWEN_SPECIALISED_LAMBDA {
    return stateAt(context, token, fixed.cache, fixed.cacheStride,
                   fixed.stepBack, of.layer, after);
  };
  forUnits(
      context, thread, fixed.heads * unitsOfHead,
      [&](int64_t unit) QWEN_SPECIALISED_LAMBDA {
        const int64_t head = unit / unitsOfHead, column = unit * kDeltaColumns;
        const auto copy = [&](int64_t token,
                              int64_t after) QWEN_SPECIALISED_LAMBDA {
          copyValues(stateOf(token, 0) + column * fixed.keyDim,
                     kDeltaColumns * fixed.keyDim,
                     stateOf(token, after) + column * fixed.keyDim);
        };
        forSequences(context, fixed.stepBack, copy,
                     [&](int64_t token, int64_t tokens,
                         int64_t after) QWEN_SPECIALISED_LAMBDA {
                       const float *x = in.of(token);
                       const float *q = x + head / fixed.sharing %
                                                fixed.keyHeads * fixed.keyDim;
                       const int64_t finite = fixed.kernel(
                           q, q + keys, x + 2 * keys + column, in.stride,
                           decay.of(token) + head, decay.stride,
                           beta.of(token) + head, beta.stride, tokens,
                           fixed.keyDim, fixed.scale,
                           stateOf(token, after) + column * fixed.keyDim,
                           out.of(token) + column, out.stride, fixed.scratch);
                       if (finite < tokens)
                         flag(context, token + finite, of.op, 1);
                     });
      });
}
