//===- Stored.h - Numbers of stored tensors ---------------------*- C++ -*-===//
//
// The values of the types of ABI/StoredTypes.h, to the bit those of ggml's
// reference. A block need not be aligned.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_STORED_H
#define QWEN_NUMERICS_STORED_H

#include "qwen/ABI/StoredTypes.h"

#include <cstdint>

namespace qwen::numerics {

/// Converts `count` values of `type` to f32. `count` is a multiple of a block.
void dequantize(StoredType type, const uint8_t *from, int64_t count, float *to);

/// Whether the values of a block of `type` have a minimum.
constexpr bool hasMinimum(StoredType type) {
  switch (type) {
  case StoredType::Q4_1:
  case StoredType::Q5_1:
  case StoredType::Q2_K:
  case StoredType::Q4_K:
  case StoredType::Q5_K:
    return true;
  default:
    return false;
  }
}

/// Values of a sub-block of `type`; 0 without sub-blocks.
constexpr int64_t subBlock(StoredType type) {
  switch (type) {
  case StoredType::Q2_K:
  case StoredType::Q3_K:
  case StoredType::Q6_K:
    return 16;
  case StoredType::Q4_K:
  case StoredType::Q5_K:
  case StoredType::IQ4_XS:
    return 32;
  default:
    return 0;
  }
}

/// A block whose values are integers times a scale, plus a minimum.
struct IntegerBlock {
  /// f16 bits; finite. The minimum is a zero for types without one.
  uint16_t scale, minimum;
  /// What the scale [0] and the minimum [1] are multiplied with in each
  /// sub-block, if there are sub-blocks.
  int8_t subIntegers[2][16];
  int8_t integers[256];
};

/// Reads the block at `from`. Returns false if `type` has floats or f16 does
/// not hold the scale and the minimum.
bool readIntegers(StoredType type, const uint8_t *from, IntegerBlock &block);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_STORED_H
