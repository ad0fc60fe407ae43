//===- Kernels.cpp - Kernels of hybrids -----------------------------------===//
//
// A function qwenCpp<Op> for each kind with provider Cpp. The build compiles
// this file to bitcode. The compiler makes a kernel of a function: it gives it
// the kernel's name and features, and qwenLanes a value.
//
//===----------------------------------------------------------------------===//

#include "Vectors.h"

#include "qwen/ABI/KernelABI.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::cpp;

/// f32 lanes of a vector register of the kernel's instruction set.
extern "C" const int64_t qwenLanes;

#define QWEN_DECLARE_MLIR(Op)
#define QWEN_DECLARE_Halide(Op)
#define QWEN_DECLARE_Cpp(Op) extern "C" Op##Fn qwenCpp##Op;
#define QWEN_KERNEL_OP(Op, Function, Provider, ...) QWEN_DECLARE_##Provider(Op)
#include "qwen/ABI/KernelOps.def"

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

/// The first `count` values at `at`, and zeros.
QWEN_INLINE static Floats loadSome(const float *at, int64_t count) {
  if (count == kVector)
    return load(at);
  Floats values = 0;
  for (int64_t i = 0; i < count; ++i)
    values[i] = at[i];
  return values;
}

QWEN_INLINE static void storeSome(float *at, Floats values, int64_t count) {
  if (count == kVector)
    return store(at, values);
  for (int64_t i = 0; i < count; ++i)
    at[i] = values[i];
}

void qwenCppDeltaGates(const float *a, const float *b, const float *rate,
                       const float *bias, int64_t n, float *decay,
                       float *beta) {
  for (int64_t i = 0; i < n; i += kVector) {
    const int64_t count = std::min(n - i, kVector);
    const Floats open =
        softplus(loadSome(a + i, count) + loadSome(bias + i, count));
    storeSome(decay + i, cpp::exp(-(loadSome(rate + i, count) * open)), count);
    storeSome(beta + i, sigmoid(loadSome(b + i, count)), count);
  }
}

void qwenCppSigmoidGate(const float *x, const float *gate, int64_t n,
                        float *y) {
  for (int64_t i = 0; i < n; i += kVector)
    store(y + i, load(x + i) * sigmoid(load(gate + i)));
}

//===----------------------------------------------------------------------===//
// Short convolution
//===----------------------------------------------------------------------===//

/// Values J, J + 4, J + 8, ... of the 64 in four vectors.
template <int J>
QWEN_INLINE static Floats everyFourth(Floats a, Floats b, Floats c, Floats d) {
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
  QWEN_INLINE explicit Taps(const float *weights) {
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
QWEN_INLINE static Floats convolve(const Taps &taps, Floats x, int64_t channels,
                                   float *state) {
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

/// Convolves vectors of channels of all tokens: the chains of operations of
/// several vectors overlap.
template <int64_t Vectors>
QWEN_INLINE static void convolveTokens(const float *x, int64_t stride,
                                       const float *weights, int64_t tokens,
                                       int64_t channels, float *state, float *y,
                                       int64_t resultStride) {
  Taps taps[Vectors];
  for (int64_t j = 0; j < Vectors; ++j)
    taps[j] = Taps(weights + j * kVector * kConvolutionTaps);
  for (int64_t token = 0; token < tokens; ++token) {
#pragma clang loop unroll(full)
    for (int64_t j = 0; j < Vectors; ++j)
      store(y + token * resultStride + j * kVector,
            convolve(taps[j], load(x + token * stride + j * kVector), channels,
                     state + j * kVector));
  }
}

void qwenCppShortConvolution(const float *x, int64_t stride,
                             const float *weights, int64_t tokens, int64_t n,
                             int64_t channels, float *state, float *y,
                             int64_t resultStride) {
  int64_t c = 0;
  for (; c + 4 * kVector <= n; c += 4 * kVector)
    convolveTokens<4>(x + c, stride, weights + c * kConvolutionTaps, tokens,
                      channels, state + c, y + c, resultStride);
  for (; c < n; c += kVector)
    convolveTokens<1>(x + c, stride, weights + c * kConvolutionTaps, tokens,
                      channels, state + c, y + c, resultStride);
}

//===----------------------------------------------------------------------===//
// Gated delta rule
//===----------------------------------------------------------------------===//

/// y = x / sqrt(sum of x^2 + 1e-6), times `scale`.
QWEN_INLINE static void normHead(const float *x, int64_t n, float scale,
                                 float *y) {
  Floats squares = 0;
  for (int64_t i = 0; i < n; i += kVector)
    squares = squares + load(x + i) * load(x + i);
  const float r =
      1.0f / __builtin_elementwise_sqrt(sumOfLanes(squares) + 1e-6f);
  for (int64_t i = 0; i < n; i += kVector)
    store(y + i, load(x + i) * r * scale);
}

/// Columns of a state whose chains run side by side.
template <int64_t Count>
using Columns = float __attribute__((ext_vector_type(Count)));

/// Columns at `at`: of one block, or of two that are `distance` values apart.
template <int64_t Count>
QWEN_INLINE static Columns<Count> loadColumns(const float *at,
                                              int64_t distance) {
  using Stored [[gnu::aligned(alignof(float))]] = Columns<Count>;
  if constexpr (Count <= kVector) {
    return *reinterpret_cast<const Stored *>(at);
  } else {
    Columns<Count> values;
    values.lo = load(at);
    values.hi = load(at + distance);
    return values;
  }
}

template <int64_t Count>
QWEN_INLINE static void storeColumns(float *at, int64_t distance,
                                     Columns<Count> values) {
  using Stored [[gnu::aligned(alignof(float))]] = Columns<Count>;
  if constexpr (Count <= kVector) {
    *reinterpret_cast<Stored *>(at) = values;
  } else {
    store(at, values.lo);
    store(at + distance, values.hi);
  }
}

/// Four values that rows are multiplied with. NEON multiplies with a lane of a
/// register; other instruction sets take each value from memory.
template <int64_t Count> struct Factors {
  const float *at;

  QWEN_INLINE explicit Factors(const float *at) : at(at) {}
  QWEN_INLINE float operator[](int64_t i) const { return at[i]; }
};
template <> struct Factors<8> {
  Columns<4> values;

  QWEN_INLINE explicit Factors(const float *at)
      : values(loadColumns<4>(at, 0)) {}
  QWEN_INLINE float operator[](int64_t i) const { return values[i]; }
};

/// Adds up next(i, j, xs, ys, chain) for i of [0, n) in four chains j = i mod
/// 4; xs and ys are the factors from i - j on. LLVM would not keep an array of
/// chains in registers.
template <int64_t Count, typename Next>
QWEN_INLINE static Columns<Count> sumInChains(const float *x, const float *y,
                                              int64_t n, const Next &next) {
  Columns<Count> a = 0, b = 0, c = 0, d = 0;
  for (int64_t i = 0; i < n; i += 4) {
    const Factors<Count> xs(x + i), ys(y + i);
    a = next(i, 0, xs, ys, a);
    b = next(i + 1, 1, xs, ys, b);
    c = next(i + 2, 2, xs, ys, c);
    d = next(i + 3, 3, xs, ys, d);
  }
  return (a + c) + (b + d);
}

/// One token of some columns of a state, whose blocks are [keyDim][16]. Returns
/// what the query reads.
template <int64_t Count>
QWEN_INLINE static Columns<Count>
stepColumns(const float *q, const float *k, Columns<Count> v, float decay,
            float beta, int64_t keyDim, float *state) {
  using Values = Columns<Count>;
  using Four = Factors<Count>;
  const int64_t distance = keyDim * kVector;
  const auto row = [&](int64_t i) __attribute__((always_inline)) {
    return loadColumns<Count>(state + i * kVector, distance);
  };
  const Values old =
      decay * sumInChains<Count>(
                  k, k, keyDim,
                  [&](int64_t i, int64_t j, const Four &keys, const Four &,
                      Values chain) __attribute__((always_inline)) {
                    return fma(Values(keys[j]), row(i), chain);
                  });
  const Values change = beta * (v - old);
  return sumInChains<Count>(
      k, q, keyDim,
      [&](int64_t i, int64_t j, const Four &keys, const Four &queries,
          Values chain) __attribute__((always_inline)) {
        const Values s = fma(Values(keys[j]), change, decay * row(i));
        storeColumns<Count>(state + i * kVector, distance, s);
        return fma(Values(queries[j]), s, chain);
      });
}

/// Steps all columns, `Count` of them side by side.
template <int64_t Count>
QWEN_INLINE static void stepAll(const float *query, const float *key,
                                const float *v, float decay, float beta,
                                int64_t keyDim, float *state, float *y) {
  for (int64_t j = 0; j < kDeltaColumns; j += Count)
    storeColumns<Count>(
        y + j, kVector,
        stepColumns<Count>(
            query, key, loadColumns<Count>(v + j, kVector), decay, beta, keyDim,
            state + j / kVector * kVector * keyDim + j % kVector));
}

/// Two registers of columns have eight chains, which hide the latency of fma.
int32_t qwenCppDeltaRule(const float *q, const float *k, const float *v,
                         float decay, float beta, int64_t keyDim, float scale,
                         float *state, float *y, float *scratch) {
  float *query = scratch, *key = scratch + keyDim;
  normHead(q, keyDim, scale, query);
  normHead(k, keyDim, 1, key);
  if (qwenLanes == 4)
    stepAll<8>(query, key, v, decay, beta, keyDim, state, y);
  else if (qwenLanes == 8)
    stepAll<16>(query, key, v, decay, beta, keyDim, state, y);
  else
    stepAll<32>(query, key, v, decay, beta, keyDim, state, y);
  Integers isBad = 0;
  for (int64_t j = 0; j < kDeltaColumns; j += kVector)
    isBad |= notFinite(load(y + j));
  return __builtin_reduce_or(isBad) != 0;
}
