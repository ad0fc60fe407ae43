//===- EightFloats.h - Eight floats at a time -------------------*- C++ -*-===//
//
// Arithmetic of Clang's vectors, whose lanes are outputs: an element of a
// result is the same on each machine, whatever registers it has.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_QUANTIZERS_EIGHTFLOATS_H
#define QWEN_LIB_QUANTIZERS_EIGHTFLOATS_H

#include <cstdint>
#include <cstring>

namespace qwen {

inline constexpr int64_t kLanes = 8;

using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;
/// The result of a comparison: all bits of a lane, or none.
using LaneMask [[gnu::vector_size(kLanes * sizeof(int32_t))]] = int32_t;

inline Lanes load(const float *from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
inline void store(Lanes lanes, float *to) {
  std::memcpy(to, &lanes, sizeof(lanes));
}
inline Lanes splat(float value) {
  return {value, value, value, value, value, value, value, value};
}

/// a * b + c, rounded once.
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return __builtin_elementwise_fma(a, b, c);
}
/// Rounded to nearest, ties to even.
inline Lanes roundEven(Lanes x) { return __builtin_elementwise_roundeven(x); }
inline Lanes magnitude(Lanes x) { return __builtin_elementwise_abs(x); }
inline Lanes least(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes greatest(Lanes a, Lanes b) { return a > b ? a : b; }
/// 1 / x, or 0 where that is infinite.
inline Lanes reciprocal(Lanes x) {
  return magnitude(x) < 0x1p-127f ? Lanes{} : 1.0f / x;
}

} // namespace qwen

#endif // QWEN_LIB_QUANTIZERS_EIGHTFLOATS_H
