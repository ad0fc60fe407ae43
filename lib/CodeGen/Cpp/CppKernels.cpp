//===- CppKernels.cpp - Kernels in C++ ------------------------------------===//
//
// A function qwenCpp<Op> for each kind with provider Cpp. The build compiles
// this file to bitcode. The compiler makes a kernel of a function: it gives it
// the kernel's name and features, and qwenLanes a value.
//
//===----------------------------------------------------------------------===//

#include "Vectors.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelABI.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::cpp;

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
// Hadamard transform
//===----------------------------------------------------------------------===//

namespace {
/// 32 values. A step of the transform gives (x + y, x - y) for the pairs of
/// values x and y whose numbers differ in one bit only.
struct Pair {
  Floats a, b;
};
} // namespace

/// A step of neighbours within 128 bits: the even values of both vectors, and
/// the odd ones. Sums and differences become vectors of their own, so that bit
/// 0 of a place says which vector, bit 1 becomes bit 0, and the vector bit 1.
QWEN_INLINE static Pair stepNear(Pair x) {
  const Floats even = __builtin_shufflevector(
      x.a, x.b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30);
  const Floats odd = __builtin_shufflevector(x.a, x.b, 1, 3, 17, 19, 5, 7, 21,
                                             23, 9, 11, 25, 27, 13, 15, 29, 31);
  return {even + odd, even - odd};
}

/// The same of neighbouring 128 bits: bits 2 and 3 of a place.
QWEN_INLINE static Pair stepFar(Pair x) {
  const Floats even = __builtin_shufflevector(
      x.a, x.b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  const Floats odd = __builtin_shufflevector(
      x.a, x.b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  return {even + odd, even - odd};
}

/// The steps of 32 values: of bits 0, 1, 2, 3 and 4 of their numbers. Then the
/// bits of a place are bits 0, 3, 1 and 2.
QWEN_INLINE static Pair transform32(Pair x) {
  x = stepNear(stepFar(stepFar(stepNear(stepNear(x)))));
  const auto inOrder = [](Floats y) __attribute__((always_inline)) {
    return __builtin_shufflevector(y, y, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7,
                                   10, 11, 14, 15);
  };
  return {inOrder(x.a), inOrder(x.b)};
}

template <int64_t Size>
QWEN_INLINE static void transform(const float *x, float *y) {
  constexpr int64_t vectors = Size / kVector;
  Floats values[vectors];
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < vectors; i += 2) {
    const Pair pair =
        transform32({load(x + i * kVector), load(x + (i + 1) * kVector)});
    values[i] = pair.a;
    values[i + 1] = pair.b;
  }
#pragma clang loop unroll(full)
  for (int64_t h = 2; h < vectors; h *= 2)
#pragma clang loop unroll(full)
    for (int64_t i = 0; i < vectors; ++i)
      if ((i & h) == 0) {
        const Floats a = values[i], b = values[i + h];
        values[i] = a + b;
        values[i + h] = a - b;
      }
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < vectors; ++i)
    store(y + i * kVector, values[i]);
}

/// Transforms a block of `Groups` groups.
template <int64_t Groups>
QWEN_INLINE static void transformBlock(const float *x, float *y) {
  if constexpr (Groups == kBlockGroups) {
    transform<kActivationBlock>(x, y);
  } else {
    constexpr int64_t first = Groups / 2 * 64;
    if constexpr (first != 0)
      transform<first>(x, y);
    if constexpr (Groups % 2 != 0)
      transform<kGroup>(x + first, y + first);
  }
}

/// Calls visit<groups>(first value) for the blocks of n values.
template <typename Visit>
QWEN_INLINE static void forBlocks(int64_t n, const Visit &visit) {
  int64_t i = 0;
  for (; n - i >= kActivationBlock; i += kActivationBlock)
    visit.template operator()<kBlockGroups>(i);
  if (n - i == 3 * kGroup)
    visit.template operator()<3>(i);
  else if (n - i == 2 * kGroup)
    visit.template operator()<2>(i);
  else if (n - i == kGroup)
    visit.template operator()<1>(i);
}

void qwenCppHadamard(const float *x, int64_t n, float *y) {
  forBlocks(n, [&]<int64_t Groups>(int64_t i) __attribute__((always_inline)) {
    transformBlock<Groups>(x + i, y + i);
  });
}

/// The bits of the largest magnitudes, lane by lane.
template <int64_t Groups>
QWEN_INLINE static Integers largestMagnitudes(const float *x) {
  Integers largest[2 * Groups];
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < 2 * Groups; ++i)
    largest[i] =
        __builtin_bit_cast(Integers, load(x + i * kVector)) & INT32_MAX;
#pragma clang loop unroll(full)
  for (int64_t h = 1; h < 2 * Groups; h *= 2)
#pragma clang loop unroll(full)
    for (int64_t i = 0; i + h < 2 * Groups; i += 2 * h)
      largest[i] = __builtin_elementwise_max(largest[i], largest[i + h]);
  return largest[0];
}

/// Sums of neighbours within 128 bits.
QWEN_INLINE static Integers addNear(Integers a, Integers b) {
  return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24,
                                 26, 12, 14, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25,
                                 27, 13, 15, 29, 31);
}

/// Rounds x * scale to integers of at most 127, and sums the integers of each
/// group. The sum with 1.5 * 2^23 has an integer in its lowest bits, rounded to
/// nearest, ties to even.
template <int64_t Groups>
QWEN_INLINE static void quantizeBlock(const float *x, float scale, int8_t *q,
                                      int32_t *sums) {
  using Bytes = int8_t __attribute__((ext_vector_type(kVector)));
  constexpr float kInteger = 0x1.8p23f;
  Integers ofGroups[kBlockGroups] = {};
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < 2 * Groups; ++i) {
    const Integers rounded =
        __builtin_bit_cast(Integers, load(x + i * kVector) * scale + kInteger);
    const Bytes bytes = __builtin_convertvector(rounded, Bytes);
    __builtin_memcpy(q + i * kVector, &bytes, sizeof bytes);
    ofGroups[i / 2] += rounded - __builtin_bit_cast(int32_t, kInteger);
  }
  const Integers quarters = addNear(addNear(ofGroups[0], ofGroups[1]),
                                    addNear(ofGroups[2], ofGroups[3]));
  const auto halves = quarters.lo + quarters.hi;
  const auto all = halves.lo + halves.hi;
  __builtin_memcpy(sums, &all, Groups * sizeof *sums);
}

/// All blocks are transformed before the first is quantized: the chain of
/// operations of one block is longer than a processor looks ahead.
int32_t qwenCppHadamardQ8(const float *x, int64_t n, int8_t *q, float *d,
                          int32_t *sums) {
  float y[kStackValues], scales[kStackValues / kActivationBlock];
  Integers largest = 0;
  forBlocks(n, [&]<int64_t Groups>(int64_t i) __attribute__((always_inline)) {
    transformBlock<Groups>(x + i, y + i);
    const Integers magnitudes = largestMagnitudes<Groups>(y + i);
    largest = __builtin_elementwise_max(largest, magnitudes);
    const float amax =
        __builtin_bit_cast(float, __builtin_reduce_max(magnitudes));
    const bool isZero = amax < 0x1p-100f;
    d[i / kActivationBlock] = isZero ? 0.0f : amax / 127.0f;
    scales[i / kActivationBlock] = isZero ? 0.0f : 127.0f / amax;
  });
  forBlocks(n, [&]<int64_t Groups>(int64_t i) __attribute__((always_inline)) {
    quantizeBlock<Groups>(y + i, scales[i / kActivationBlock], q + i,
                          sums + i / kGroup);
  });
  return __builtin_reduce_or(notFinite(__builtin_bit_cast(Floats, largest))) !=
         0;
}

//===----------------------------------------------------------------------===//
// Rotations
//===----------------------------------------------------------------------===//

/// The Hadamard transform of a row; `width` is a power of two from 32 on.
QWEN_INLINE static void transformRow(float *y, int64_t width) {
  for (int64_t i = 0; i < width; i += 32)
    transform<32>(y + i, y + i);
  for (int64_t half = 32; half < width; half *= 2)
    for (int64_t begin = 0; begin < width; begin += 2 * half)
      for (int64_t i = begin; i < begin + half; i += kVector) {
        const Floats a = load(y + i), b = load(y + i + half);
        store(y + i, a + b);
        store(y + i + half, a - b);
      }
}

void qwenCppTurn(const float *x, const float *factor, int64_t k, float *y) {
  const int64_t width = k & -k;
  // k / width, without a division.
  int64_t odd = 0;
  for (int64_t i = 0; i < k; i += width)
    ++odd;
  for (int64_t row = 0; row < odd; ++row) {
    for (int64_t i = 0; i < width; i += kVector) {
      Floats sum = 0;
      for (int64_t other = 0, at = 0; other < odd; ++other) {
        sum += load(x + other * width + i) * factor[at];
        at += row;
        at -= at < odd ? 0 : odd;
      }
      store(y + row * width + i, sum);
    }
    transformRow(y + row * width, width);
  }
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

namespace {
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

/// A sum over the rows of a state in four chains: row i is in chain i mod 4.
/// LLVM would not keep an array of chains in registers.
template <int64_t Count> struct Chains {
  Columns<Count> a = 0, b = 0, c = 0, d = 0;

  QWEN_INLINE Columns<Count> sum() const { return (a + c) + (b + d); }
};

/// Some columns of a state, whose blocks are [keyDim][16].
template <int64_t Count> struct State {
  using Values = Columns<Count>;

  float *at;
  /// Where as many columns begin that a later call is likely to step.
  const float *ahead;
  int64_t keyDim;

  QWEN_INLINE Values row(int64_t i) const {
    return loadColumns<Count>(at + i * kVector, keyDim * kVector);
  }
  QWEN_INLINE void setRow(int64_t i, Values values) const {
    storeColumns<Count>(at + i * kVector, keyDim * kVector, values);
  }

  /// What it has for a key.
  QWEN_INLINE Values read(const float *key) const {
    Chains<Count> chains;
    for (int64_t i = 0; i < keyDim; i += 4) {
      const Factors<Count> keys(key + i);
      chains.a = fma(Values(keys[0]), row(i), chains.a);
      chains.b = fma(Values(keys[1]), row(i + 1), chains.b);
      chains.c = fma(Values(keys[2]), row(i + 2), chains.c);
      chains.d = fma(Values(keys[3]), row(i + 3), chains.d);
    }
    return chains.sum();
  }

  /// Decays it and adds `change` for a key. Returns what it then has for the
  /// query. With ReadsNext, `next` becomes what it has for the next token's
  /// key, so that each row is loaded once for a token. With FetchesAhead, it
  /// prefetches the columns at `ahead`: this pass needs nothing from memory.
  template <bool ReadsNext, bool FetchesAhead>
  QWEN_INLINE Values step(const float *query, const float *key,
                          const float *nextKey, float decay, Values change,
                          Values &next) const {
    Chains<Count> reads, nexts;
    for (int64_t i = 0; i < keyDim; i += 4) {
      const Factors<Count> keys(key + i), queries(query + i),
          nextKeys(nextKey + i);
      if constexpr (FetchesAhead)
        for (int64_t j = 0; j < 4 * Count; j += kVector)
          __builtin_prefetch(ahead + i * Count + j, 0, 2);
      const auto stepRow =
          [&](int64_t j, Values &readChain,
              Values &nextChain) __attribute__((always_inline)) {
            const Values s = fma(Values(keys[j]), change, decay * row(i + j));
            setRow(i + j, s);
            readChain = fma(Values(queries[j]), s, readChain);
            if constexpr (ReadsNext)
              nextChain = fma(Values(nextKeys[j]), s, nextChain);
          };
      stepRow(0, reads.a, nexts.a);
      stepRow(1, reads.b, nexts.b);
      stepRow(2, reads.c, nexts.c);
      stepRow(3, reads.d, nexts.d);
    }
    next = nexts.sum();
    return reads.sum();
  }
};

/// The arguments of qwenCppDeltaRule.
struct DeltaTokens {
  const float *q, *k, *v;
  int64_t stride;
  const float *decay;
  int64_t decayStride;
  const float *beta;
  int64_t betaStride;
  int64_t tokens, keyDim;
  float scale;
  float *state, *y;
  int64_t resultStride;
  float *scratch;

  /// The normed query of a token, and behind it the key. The heads of the last
  /// two tokens are kept.
  QWEN_INLINE float *headsOf(int64_t token) const {
    return scratch + token % 2 * 2 * keyDim;
  }
  QWEN_INLINE void norm(int64_t token) const {
    normHead(q + token * stride, keyDim, scale, headsOf(token));
    normHead(k + token * stride, keyDim, 1, headsOf(token) + keyDim);
  }

  /// Steps all columns by a token, `Count` of them side by side. With
  /// ReadsNext, a step also reads the state for the next token's key; `olds`
  /// holds that until the next step.
  template <int64_t Count, bool ReadsNext>
  QWEN_INLINE void step(int64_t token, float *olds) const {
    const float *query = headsOf(token), *key = query + keyDim;
    const float *nextKey = headsOf(token + 1) + keyDim;
    const float decays = decay[token * decayStride];
    for (int64_t j = 0; j < kDeltaColumns; j += Count) {
      const State<Count> columns = {
          state + j / kVector * kVector * keyDim + j % kVector,
          state + (kDeltaColumns + j) * keyDim, keyDim};
      Columns<Count> old = ReadsNext && token != 0
                               ? loadColumns<Count>(olds + j, kVector)
                               : columns.read(key);
      const Columns<Count> change =
          beta[token * betaStride] *
          (loadColumns<Count>(v + token * stride + j, kVector) - decays * old);
      const Columns<Count> read =
          token + 1 < tokens
              ? columns.template step<ReadsNext, false>(query, key, nextKey,
                                                        decays, change, old)
              : columns.template step<false, true>(query, key, nextKey, decays,
                                                   change, old);
      storeColumns<Count>(olds + j, kVector, old);
      storeColumns<Count>(y + token * resultStride + j, kVector, read);
    }
  }

  template <int64_t Count, bool ReadsNext> QWEN_INLINE int64_t run() const {
    float olds[kDeltaColumns];
    int64_t finite = tokens;
    norm(0);
    for (int64_t token = 0; token < tokens; ++token) {
      // The next norms do not wait for this token's step.
      if (token + 1 < tokens)
        norm(token + 1);
      step<Count, ReadsNext>(token, olds);
      Integers isBad = 0;
      for (int64_t j = 0; j < kDeltaColumns; j += kVector)
        isBad |= notFinite(load(y + token * resultStride + j));
      finite = std::min(finite, __builtin_reduce_or(isBad) ? token : tokens);
    }
    return finite;
  }
};
} // namespace

/// Two registers of columns have eight chains, which hide the latency of fma.
/// The 16 registers of AVX2 hold the chains of one sum only.
int64_t qwenCppDeltaRule(const float *q, const float *k, const float *v,
                         int64_t stride, const float *decay,
                         int64_t decayStride, const float *beta,
                         int64_t betaStride, int64_t tokens, int64_t keyDim,
                         float scale, float *state, float *y,
                         int64_t resultStride, float *scratch) {
  const DeltaTokens call = {
      q,      k,      v,     stride, decay, decayStride,  beta,   betaStride,
      tokens, keyDim, scale, state,  y,     resultStride, scratch};
  if (qwenLanes == 4)
    return call.run<8, true>();
  if (qwenLanes == 8)
    return call.run<16, false>();
  return call.run<32, true>();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

#include "AttentionKernels.cpp"

//===----------------------------------------------------------------------===//
// Experts and element-wise maps
//===----------------------------------------------------------------------===//

#include "ExpertKernels.cpp"
#include "MapKernels.cpp"

//===----------------------------------------------------------------------===//
// The KV cache
//===----------------------------------------------------------------------===//

#include "CacheKernels.cpp"
