//===- Exp.h - exp of f32 without a branch ----------------------*- C++ -*-===//

#ifndef QWEN_LIB_NUMERICS_EXP_H
#define QWEN_LIB_NUMERICS_EXP_H

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace qwen::numerics {

/// numerics::exp of f32. Loops over it become vectors, of the width of the
/// function that it is inlined into; its bits are the same.
[[gnu::always_inline]] inline float expInline(float x) {
  const bool isTiny = x < -87.3f;
  x = x < 88.375f ? x : 88.375f;
  x = isTiny ? -87.3f : x;
  // The sum rounds to an integer, ties to even, which its last bits are.
  constexpr float kOnes = 0x1.8p23f;
  const float rounded = x * 0x1.715476p+0f + kOnes;
  const float n = rounded - kOnes;
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
  const uint32_t exponent = std::bit_cast<uint32_t>(rounded) + 127;
  const float result = p * std::bit_cast<float>(exponent << 23);
  return isTiny ? 0.0f : result;
}

} // namespace qwen::numerics

#endif // QWEN_LIB_NUMERICS_EXP_H
