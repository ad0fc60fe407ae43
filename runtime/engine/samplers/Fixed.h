//===- Fixed.h - Sums whose order does not matter ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLERS_FIXED_H
#define QWEN_RUNTIME_ENGINE_SAMPLERS_FIXED_H

namespace qwen {

/// 1 as an integer. 2^19 numbers of magnitude 1 have a sum below 2^53, so sums
/// of such integers in double are exact.
inline constexpr double kFixedOne = 0x1p34;

/// The nearest integer to `value` * 2^34, ties to even, for |value| <= 1.
inline double toFixed(float value) {
  constexpr double kOnes = 0x1.8p52;
  return (value * kFixedOne + kOnes) - kOnes;
}

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLERS_FIXED_H
