//===- Hadamard.h - Steps of the Hadamard transform -------------*- C++ -*-===//

#ifndef QWEN_LIB_NUMERICS_HADAMARD_H
#define QWEN_LIB_NUMERICS_HADAMARD_H

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <bit>

namespace qwen::numerics {

/// The transform of `size` values, a power of two, in each of `lanes` columns:
/// x is [size][lanes].
template <typename T>
void transformHadamard(T *x, int64_t size, int64_t lanes = 1) {
  for (int64_t half = lanes; half < size * lanes; half *= 2)
    for (T *a = x; a != x + size * lanes; a += 2 * half)
      for (int64_t i = 0; i < half; ++i) {
        const T sum = a[i] + a[i + half];
        a[i + half] = a[i] - a[i + half];
        a[i] = sum;
      }
}

/// The size of the next block of the online transform, with `left` values left:
/// the largest power of two, up to an activation block.
inline int64_t hadamardBlock(int64_t left) {
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::min(left, kActivationBlock))));
}

} // namespace qwen::numerics

#endif // QWEN_LIB_NUMERICS_HADAMARD_H
