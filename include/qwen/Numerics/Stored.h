//===- Stored.h - Numbers of stored tensors ---------------------*- C++ -*-===//
//
// The values of the types of ABI/StoredTypes.h, with the bits of ggml's
// reference. A block need not be aligned.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_STORED_H
#define QWEN_NUMERICS_STORED_H

#include "qwen/ABI/StoredTypes.h"

#include <cstdint>

namespace qwen::numerics {

struct WeightBlock;

/// Converts `count` values of `type` to f32. `count` is a multiple of a block.
void dequantize(StoredType type, const uint8_t *from, int64_t count, float *to);

/// A block whose values are integers times a scale, plus a minimum.
struct IntegerBlock {
  /// f16 bits; finite. The minimum is a zero for types without one.
  uint16_t scale, minimum;
  /// The sub-scales [0] and sub-minimums [1], if there are sub-blocks.
  int8_t subIntegers[2][16];
  int8_t integers[256];
};

/// Whether the block at `from` has integers, and f16 holds its scale and its
/// minimum.
bool hasIntegers(StoredType type, const uint8_t *from);

/// Reads the block at `from`, for which hasIntegers() is true.
void readIntegers(StoredType type, const uint8_t *from, IntegerBlock &block);

/// Writes a block of a type for which hasNumbersOfKept() is true. `block` has
/// the codes and scales of the format that keeps the type.
void writeBlock(StoredType type, const WeightBlock &block, uint8_t *to);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_STORED_H
