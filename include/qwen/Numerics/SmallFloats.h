//===- SmallFloats.h - Floats of 4 and 8 bits -------------------*- C++ -*-===//
//
// The number formats of "OCP Microscaling Formats (MX) Specification" and "FP8
// Formats for Deep Learning" (arXiv 2209.05433).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_SMALLFLOATS_H
#define QWEN_NUMERICS_SMALLFLOATS_H

#include <bit>
#include <cstdint>

namespace qwen {

/// Twice the values of E2M1, by code. Code 8, -0, has the integer 0.
inline constexpr int8_t kE2M1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

/// Widens E4M3 without infinities (F8_E4M3); exact. 0x7f and 0xff are NaN.
constexpr float e4m3ToF32(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80u} << 24;
  const uint32_t exponent = bits >> 3 & 15, fraction = bits & 7;
  uint32_t magnitude = (exponent + 120) << 23 | fraction << 20;
  if (exponent == 0) // zero or subnormal: a multiple of 2^-9
    magnitude = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-9f);
  else if (exponent == 15 && fraction == 7)
    magnitude = 0x7fc00000;
  return std::bit_cast<float>(sign | magnitude);
}

/// Widens E8M0, a power of two; exact. 0xff is NaN.
constexpr float e8m0ToF32(uint8_t bits) {
  if (bits == 0)
    return 0x1p-127f;
  return std::bit_cast<float>(bits == 255 ? 0x7fc00000
                                          : static_cast<uint32_t>(bits) << 23);
}

} // namespace qwen

#endif // QWEN_NUMERICS_SMALLFLOATS_H
