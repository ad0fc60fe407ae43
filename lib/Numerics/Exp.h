//===- Exp.h - exp for loops ------------------------------------*- C++ -*-===//

#ifndef QWEN_LIB_NUMERICS_EXP_H
#define QWEN_LIB_NUMERICS_EXP_H

#include <bit>
#include <cstdint>

namespace qwen::numerics {

/// To the nearest integer, ties to even, for |x| < 2^22. Compilers vectorize it
/// for every CPU.
inline float roundToEven(float x) {
  constexpr float kOnes = 0x1.8p23f;
  return (x + kOnes) - kOnes;
}

/// exp without a branch, so that loops over it become vectors.
inline float expOf(float x) {
  const bool isTiny = x < -87.3f;
  x = x < 88.375f ? x : 88.375f;
  x = isTiny ? -87.3f : x;
  const float n = roundToEven(x * 0x1.715476p+0f);
  // ln 2 in two parts; n times the first is exact.
  const float r = (x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;
  float p = 0x1.a0d2cep-13f;
  for (float c : {0x1.6e879cp-10f, 0x1.11121p-7f, 0x1.555382p-5f,
                  0x1.555554p-3f, 0x1p-1f})
    p = p * r + c;
  p = p * (r * r);
  p = p + r;
  p = p + 1.0f;
  // n is in -126..127, so 2^n is a normal number and the product exact.
  const uint32_t exponent = static_cast<uint32_t>(static_cast<int>(n) + 127);
  const float result = p * std::bit_cast<float>(exponent << 23);
  return isTiny ? 0.0f : result;
}

} // namespace qwen::numerics

#endif // QWEN_LIB_NUMERICS_EXP_H
