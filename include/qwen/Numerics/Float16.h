//===- Float16.h - Conversions of 16-bit floats -----------------*- C++ -*-===//
//
// Exact conversions between f32 and the 16-bit formats of weights, scales and
// the KV cache, on their bits. F16C, and NEON's conversions with default
// rounding, give the same results.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_FLOAT16_H
#define QWEN_NUMERICS_FLOAT16_H

#include <bit>
#include <cstdint>

namespace qwen {

/// Widens IEEE half precision; exact. A NaN becomes a quiet one.
constexpr float f16ToF32(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  uint32_t bits;
  if (exponent == 0) // zero or subnormal: a multiple of 2^-24
    bits = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
  else if (exponent < 31)
    bits = (exponent + 112) << 23 | fraction << 13;
  else
    bits = 0x7f800000 | fraction << 13 | (fraction != 0 ? 0x400000u : 0u);
  return std::bit_cast<float>(sign | bits);
}

/// Whether an f16 number is neither infinite nor NaN.
constexpr bool isFiniteF16(uint16_t half) { return (half & 0x7C00) != 0x7C00; }

/// Rounds to IEEE half precision, to nearest and ties to even, with
/// subnormals; magnitudes of 65520 and more become infinity.
constexpr uint16_t f32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
  if (magnitude >= 0x477ff000) // 65520
    return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude >= 0x38800000) { // 2^-14
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
  }
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102) // below 2^-25, half of the least subnormal
    return static_cast<uint16_t>(sign);
  const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t shift = 126 - exponent; // to units of 2^-24
  const uint32_t rest = significand & ((1u << shift) - 1);
  const uint32_t tie = 1u << (shift - 1);
  uint32_t units = significand >> shift;
  if (rest > tie || (rest == tie && (units & 1) != 0))
    ++units;
  return static_cast<uint16_t>(sign | units);
}

/// Widens bfloat16; exact.
constexpr float bf16ToF32(uint16_t half) {
  return std::bit_cast<float>(uint32_t{half} << 16);
}

/// Rounds to bfloat16, to nearest and ties to even, with subnormals; finite
/// magnitudes of 0x1.ffp127 and more become infinity. A NaN becomes a quiet
/// one.
constexpr uint16_t f32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

} // namespace qwen

#endif // QWEN_NUMERICS_FLOAT16_H
