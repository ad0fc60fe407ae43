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

/// f32 lanes of a vector register of the kernel's instruction set.
extern "C" const int64_t qwenLanes;

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

/// The least x whose power is not +0.
inline constexpr float kLeastPower = -87.3f;

/// x as n ln 2 + r, and 2^n, for x of about -87.3 to 88.375: n is the nearest
/// integer to x / ln 2, or the even one of two. Other lanes have any values.
template <typename Vector> struct ReducedPower {
  Vector r, scale;

  QWEN_INLINE explicit ReducedPower(Vector x) {
    using Bits = decltype(x < x);
    const Vector quotient = x * 0x1.715476p+0f;
    Vector n;
    Bits exponent;
    if (qwenLanes == kVector) {
      // Rounding takes AVX-512 two instructions on some processors. The sum
      // with 1.5 * 2^23 has the integer in its lowest bits.
      constexpr float kInteger = 0x1.8p23f;
      const Vector sum = quotient + kInteger;
      n = sum - kInteger;
      exponent = (__builtin_bit_cast(Bits, sum) << 23) + (127 << 23);
    } else {
      n = __builtin_elementwise_roundeven(quotient);
      exponent = (__builtin_convertvector(n, Bits) + 127) << 23;
    }
    r = (x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;
    scale = __builtin_bit_cast(Vector, exponent);
  }
};

/// e^r * scale.
template <typename Vector>
QWEN_INLINE Vector expReduced(Vector r, Vector scale) {
  Vector p = 0x1.a0d2cep-13f;
  p = p * r + 0x1.6e879cp-10f;
  p = p * r + 0x1.11121p-7f;
  p = p * r + 0x1.555382p-5f;
  p = p * r + 0x1.555554p-3f;
  p = p * r + 0x1p-1f;
  p = p * (r * r);
  p = p + r;
  p = p + 1.0f;
  return p * scale;
}

/// e^x for x <= 88.375.
template <typename Vector> QWEN_INLINE Vector expBelow(Vector x) {
  const ReducedPower<Vector> of(x);
  return x < kLeastPower ? Vector(0) : expReduced(of.r, of.scale);
}
QWEN_INLINE Floats exp(Floats x) {
  return expBelow(x < 88.375f ? x : Floats(88.375f));
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

/// Combines the lanes by a tree: j and j + 8, then 4, 2 and 1.
template <typename Combine>
QWEN_INLINE float foldLanes(Floats x, const Combine &combine) {
  const auto eight = combine(x.lo, x.hi);
  const auto four = combine(eight.lo, eight.hi);
  const auto two = combine(four.lo, four.hi);
  return combine(two.x, two.y);
}
QWEN_INLINE float sumOfLanes(Floats x) {
  return foldLanes(x, [](auto a, auto b)
                          __attribute__((always_inline)) { return a + b; });
}
QWEN_INLINE float greatestLane(Floats x) {
  return foldLanes(x, [](auto a, auto b) __attribute__((always_inline)) {
    return a > b ? a : b;
  });
}

/// Not 0 where a value has an exponent of all ones: NaN or infinity.
QWEN_INLINE Integers notFinite(Floats x) {
  constexpr int32_t kExponent = 0x7f800000;
  return (__builtin_bit_cast(Integers, x) & kExponent) == kExponent;
}

} // namespace qwen::cpp

#endif // QWEN_LIB_CODEGEN_CPP_VECTORS_H
