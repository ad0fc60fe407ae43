//===- Vectors.h - Sixteen floats at a time ---------------------*- C++ -*-===//
//
// LLVM splits these vectors into vectors of the target. docs/numerics.md
// defines the steps.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_CPP_VECTORS_H
#define QWEN_LIB_CODEGEN_CPP_VECTORS_H

#include <cstdint>
#include <initializer_list>

#define QWEN_INLINE [[gnu::always_inline]] inline

// All functions are inlined, so no vector is ever passed.
#pragma clang diagnostic ignored "-Wpsabi"

namespace qwen::cpp {

inline constexpr int64_t kVector = 16;
using Floats = float __attribute__((ext_vector_type(kVector)));
using Integers = int32_t __attribute__((ext_vector_type(kVector)));
/// Floats at any address of one.
using StoredFloats [[gnu::aligned(alignof(float))]] = Floats;

QWEN_INLINE Floats load(const float *at) {
  return *reinterpret_cast<const StoredFloats *>(at);
}
QWEN_INLINE void store(float *at, Floats values) {
  *reinterpret_cast<StoredFloats *>(at) = values;
}
template <typename Vector>
QWEN_INLINE Vector fma(Vector a, Vector b, Vector c) {
  return __builtin_elementwise_fma(a, b, c);
}

QWEN_INLINE Floats exp(Floats x) {
  const Integers isLow = x < -87.3f;
  // Before the conversion to integers, so that it is defined.
  x = isLow ? Floats(0) : x;
  x = x < 88.375f ? x : Floats(88.375f);
  const Floats n = __builtin_elementwise_roundeven(x * 0x1.715476p+0f);
  const Floats r = (x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;
  Floats p = 0x1.a0d2cep-13f;
  p = p * r + 0x1.6e879cp-10f;
  p = p * r + 0x1.11121p-7f;
  p = p * r + 0x1.555382p-5f;
  p = p * r + 0x1.555554p-3f;
  p = p * r + 0x1p-1f;
  p = p * (r * r);
  p = p + r;
  p = p + 1.0f;
  const Integers exponent = (__builtin_convertvector(n, Integers) + 127) << 23;
  return isLow ? Floats(0) : p * __builtin_bit_cast(Floats, exponent);
}

QWEN_INLINE Floats sigmoid(Floats x) { return 1.0f / (1.0f + exp(-x)); }
QWEN_INLINE Floats silu(Floats x) { return x / (1.0f + exp(-x)); }

QWEN_INLINE Floats softplus(Floats x) {
  const Floats t = exp(-__builtin_elementwise_abs(x));
  const Floats s = t / (2.0f + t);
  const Floats z = s * s;
  Floats p = 1.0f / 17;
  for (float c : {1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5,
                  1.0f / 3})
    p = p * z + c;
  const Floats twice = s + s;
  return (x > 0.0f ? x : Floats(0)) + (twice + (twice * z) * p);
}

/// The sum of the lanes, by a tree: j and j + 8, then 4, 2 and 1.
QWEN_INLINE float sumOfLanes(Floats x) {
  using Eight = float __attribute__((ext_vector_type(8)));
  using Four = float __attribute__((ext_vector_type(4)));
  const Eight eight = x.lo + x.hi;
  const Four four = eight.lo + eight.hi;
  const auto two = four.lo + four.hi;
  return two.x + two.y;
}

/// Not 0 where a value has an exponent of all ones: NaN or infinity.
QWEN_INLINE Integers notFinite(Floats x) {
  constexpr int32_t kExponent = 0x7f800000;
  return (__builtin_bit_cast(Integers, x) & kExponent) == kExponent;
}

} // namespace qwen::cpp

#endif // QWEN_LIB_CODEGEN_CPP_VECTORS_H
