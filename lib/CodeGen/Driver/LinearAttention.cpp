//===- LinearAttention.cpp - Short convolution and gated delta rule -------===//

#include "Places.h"
#include "Vectors.h"

#include "qwen/CodeGen/Driver/Driver.h"

#include <type_traits>

using namespace qwen;
using namespace qwen::driver;

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

/// Calls compute(i, count) for the first of each `count` of n values: a vector
/// of them, or the rest.
template <typename Compute>
QWEN_SPECIALISED static void forVectors(int64_t n, const Compute &compute) {
  for (int64_t i = 0; i < n; i += kVector)
    compute(i, std::min(n - i, kVector));
}

/// The first `count` values at `at`, and zeros.
QWEN_SPECIALISED static Floats loadSome(const float *at, int64_t count) {
  if (count == kVector)
    return load(at);
  Floats values = 0;
  for (int64_t i = 0; i < count; ++i)
    values[i] = at[i];
  return values;
}

QWEN_SPECIALISED static void storeSome(float *at, Floats values,
                                       int64_t count) {
  if (count == kVector)
    return store(at, values);
  for (int64_t i = 0; i < count; ++i)
    at[i] = values[i];
}

QWEN_ENTRY void
qwen::qwenDriverDeltaGates(const Context *context, int32_t thread, int64_t a,
                           int64_t aStride, int64_t b, int64_t bStride,
                           int64_t rate, int64_t bias, int64_t decay,
                           int64_t decayStride, int64_t beta,
                           int64_t betaStride, int64_t heads, int32_t /*op*/) {
  const float *rates = weightsAt(context, rate);
  const float *biases = weightsAt(context, bias);
  forUnits(context, thread, context->tokens, [&](int64_t token) {
    const float *x = arenaAt(context, a) + token * aStride;
    const float *y = arenaAt(context, b) + token * bStride;
    float *decays = arenaAt(context, decay) + token * decayStride;
    float *betas = arenaAt(context, beta) + token * betaStride;
    forVectors(heads, [&](int64_t i, int64_t count) {
      const Floats open =
          softplus(loadSome(x + i, count) + loadSome(biases + i, count));
      storeSome(decays + i, driver::exp(-(loadSome(rates + i, count) * open)),
                count);
      storeSome(betas + i, sigmoid(loadSome(y + i, count)), count);
    });
  });
}

//===----------------------------------------------------------------------===//
// Short convolution
//===----------------------------------------------------------------------===//

/// Values J, J + 4, J + 8, ... of the 64 in four vectors.
template <int J>
QWEN_SPECIALISED static Floats everyFourth(Floats a, Floats b, Floats c,
                                           Floats d) {
  const auto low = __builtin_shufflevector(a, b, J, J + 4, J + 8, J + 12,
                                           J + 16, J + 20, J + 24, J + 28);
  const auto high = __builtin_shufflevector(c, d, J, J + 4, J + 8, J + 12,
                                            J + 16, J + 20, J + 24, J + 28);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                 11, 12, 13, 14, 15);
}

namespace {
/// The taps of 16 channels, whose weights are [16][4].
struct Taps {
  Floats first, second, third, last;

  Taps() = default;
  QWEN_SPECIALISED explicit Taps(const float *weights) {
    const Floats a = load(weights), b = load(weights + kVector),
                 c = load(weights + 2 * kVector),
                 d = load(weights + 3 * kVector);
    first = everyFourth<0>(a, b, c, d);
    second = everyFourth<1>(a, b, c, d);
    third = everyFourth<2>(a, b, c, d);
    last = everyFourth<3>(a, b, c, d);
  }
};
} // namespace

/// Adds a token to 16 channels: their three last inputs are at `state`, rows
/// of `channels` values.
QWEN_SPECIALISED static Floats convolve(const Taps &taps, Floats x,
                                        int64_t channels, float *state) {
  const Floats second = load(state + channels);
  const Floats third = load(state + 2 * channels);
  Floats acc = fma(taps.first, load(state), Floats(0));
  acc = fma(taps.second, second, acc);
  acc = fma(taps.third, third, acc);
  acc = fma(taps.last, x, acc);
  store(state, second);
  store(state + channels, third);
  store(state + 2 * channels, x);
  return silu(acc);
}

/// A unit is up to four vectors of channels of all tokens: a token's are side
/// by side in memory, and their chains of operations overlap.
QWEN_ENTRY void qwen::qwenDriverShortConvolution(
    const Context *context, int32_t thread, int64_t in, int64_t inStride,
    int64_t weight, int64_t out, int64_t stride, int64_t channels,
    int64_t layer, int32_t /*op*/, int64_t cache, int64_t cacheStride) {
  const float *weights = weightsAt(context, weight);
  const auto compute = [&]<int64_t Vectors>(
                           int64_t first,
                           std::integral_constant<int64_t, Vectors>) {
    Taps taps[Vectors];
    for (int64_t j = 0; j < Vectors; ++j)
      taps[j] = Taps(weights + (first + j * kVector) * kConvolutionTaps);
    for (int64_t token = 0; token < context->tokens; ++token) {
      float *state = stateAt(context, token, cache, cacheStride, layer) + first;
      const float *x = arenaAt(context, in) + token * inStride + first;
      float *y = arenaAt(context, out) + token * stride + first;
#pragma clang loop unroll(full)
      for (int64_t j = 0; j < Vectors; ++j)
        store(y + j * kVector, convolve(taps[j], load(x + j * kVector),
                                        channels, state + j * kVector));
    }
  };
  constexpr int64_t most = 4 * kVector;
  forUnits(context, thread, ceilDiv(channels, most), [&](int64_t unit) {
    int64_t first = unit * most;
    if (first + most <= channels)
      return compute(first, std::integral_constant<int64_t, 4>());
    for (; first < channels; first += kVector)
      compute(first, std::integral_constant<int64_t, 1>());
  });
}

//===----------------------------------------------------------------------===//
// Gated delta rule
//===----------------------------------------------------------------------===//

/// y = x / sqrt(sum of x^2 + 1e-6), times `scale`.
QWEN_SPECIALISED static void normHead(const float *x, int64_t n, float scale,
                                      float *y) {
  Floats squares = 0;
  for (int64_t i = 0; i < n; i += kVector)
    squares = squares + load(x + i) * load(x + i);
  const float r =
      1.0f / __builtin_elementwise_sqrt(sumOfLanes(squares) + 1e-6f);
  for (int64_t i = 0; i < n; i += kVector)
    store(y + i, load(x + i) * r * scale);
}

/// Two blocks of 16 columns.
using Pair = float __attribute__((ext_vector_type(2 * kVector)));

/// The blocks of 16 values at `at`, `distance` values apart.
template <typename Columns>
QWEN_SPECIALISED static Columns loadBlocks(const float *at, int64_t distance) {
  Columns values;
  if constexpr (std::is_same_v<Columns, Pair>) {
    values.lo = load(at);
    values.hi = load(at + distance);
  } else {
    values = load(at);
  }
  return values;
}

template <typename Columns>
QWEN_SPECIALISED static void storeBlocks(float *at, int64_t distance,
                                         Columns values) {
  if constexpr (std::is_same_v<Columns, Pair>) {
    store(at, values.lo);
    store(at + distance, values.hi);
  } else {
    store(at, values);
  }
}

/// Adds up next(i, chain) for i of [0, n) in four chains, i mod 4. LLVM would
/// not keep an array of them in registers.
template <typename Columns, typename Next>
QWEN_SPECIALISED static Columns sumInChains(int64_t n, const Next &next) {
  Columns a = 0, b = 0, c = 0, d = 0;
  for (int64_t i = 0; i < n; i += 4) {
    a = next(i, a);
    b = next(i + 1, b);
    c = next(i + 2, c);
    d = next(i + 3, d);
  }
  return (a + c) + (b + d);
}

/// One token of some columns of a state, whose blocks are [keyDim][16]. Returns
/// what the query reads.
template <typename Columns>
QWEN_SPECIALISED static Columns stepColumns(const float *q, const float *k,
                                            Columns v, float decay, float beta,
                                            int64_t keyDim, float *state) {
  const int64_t distance = keyDim * kVector;
  const auto row = [&](int64_t i) __attribute__((always_inline)) {
    return loadBlocks<Columns>(state + i * kVector, distance);
  };
  const Columns old =
      decay * sumInChains<Columns>(keyDim, [&](int64_t i, Columns chain)
                                               __attribute__((always_inline)) {
                                                 return fma(Columns(k[i]),
                                                            row(i), chain);
                                               });
  const Columns change = beta * (v - old);
  return sumInChains<Columns>(
      keyDim, [&](int64_t i, Columns chain) __attribute__((always_inline)) {
        const Columns s = fma(Columns(k[i]), change, decay * row(i));
        storeBlocks(state + i * kVector, distance, s);
        return fma(Columns(q[i]), s, chain);
      });
}

QWEN_SPECIALISED static bool hasNotFinite(Floats values) {
  return __builtin_reduce_or(notFinite(values)) != 0;
}
QWEN_SPECIALISED static bool hasNotFinite(Pair values) {
  return __builtin_reduce_or(notFinite(values.lo) | notFinite(values.hi)) != 0;
}

/// A unit is a value head and kDeltaColumns columns of its state, for all
/// tokens: they stay in the first cache.
QWEN_ENTRY void qwen::qwenDriverDeltaRule(
    const Context *context, int32_t thread, int64_t in, int64_t inStride,
    int64_t decay, int64_t decayStride, int64_t beta, int64_t betaStride,
    int64_t out, int64_t stride, int64_t layer, int32_t op, int64_t cache,
    int64_t cacheStride, int64_t keyHeads, int64_t keyDim, int64_t heads,
    int64_t valueDim, float scale, int64_t together, float *scratch) {
  const int64_t unitsOfHead = valueDim / kDeltaColumns;
  const int64_t keys = keyHeads * keyDim;
  float *query = scratch, *key = scratch + keyDim;
  const auto compute = [&](int64_t token, int64_t head, int64_t first) {
    const float *q = arenaAt(context, in) + token * inStride +
                     head * keyHeads / heads * keyDim;
    normHead(q, keyDim, scale, query);
    normHead(q + keys, keyDim, 1, key);
    const int64_t column = head * valueDim + first;
    const float *v = arenaAt(context, in) + token * inStride + 2 * keys;
    float *y = arenaAt(context, out) + token * stride;
    float *state =
        stateAt(context, token, cache, cacheStride, layer) + column * keyDim;
    const auto step = [&]<typename Columns>(int64_t j, Columns) {
      const Columns read =
          stepColumns(query, key, loadBlocks<Columns>(v + column + j, kVector),
                      arenaAt(context, decay)[token * decayStride + head],
                      arenaAt(context, beta)[token * betaStride + head], keyDim,
                      state + j * keyDim);
      flag(context, token, op, hasNotFinite(read));
      storeBlocks(y + column + j, kVector, read);
    };
    for (int64_t j = 0; j < kDeltaColumns; j += together)
      if (together == kVector)
        step(j, Floats());
      else
        step(j, Pair());
  };
  forUnits(context, thread, heads * unitsOfHead, [&](int64_t unit) {
    for (int64_t token = 0; token < context->tokens; ++token)
      compute(token, unit / unitsOfHead, unit % unitsOfHead * kDeltaColumns);
  });
}
