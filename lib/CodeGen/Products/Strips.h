//===- Strips.h - Weights that the tiles of a strip share -------*- C++ -*-===//
//
// The loops of StripDots and BlockDots, x86's orders for prompts, and the
// memory on the stack for the weights that the tiles of a strip of tokens
// share:
//
//   for each panel of 16 outputs, or each two together
//     for each strip of tokens
//       for each `depth` groups along K
//         unpack their weights and the integers of their sub-blocks
//         for each tile of tokens
//           dots and scales of these groups, added to the tile's sums
//       + bias, + residual, store
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_STRIPS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_STRIPS_H

#include "TileSums.h"

namespace qwen {

class Strips {
public:
  /// Vectors of outputs of a tile.
  static constexpr int64_t kVectors = 2;

  /// The part of a group that tiles share beside the integers of sub-blocks.
  enum class Shared : uint8_t {
    /// Bytes as dots take them.
    Bytes,
    /// Bytes of weights with their sign, for dots with unsigned activations,
    /// and the correction of these dots.
    SignedBytes,
    /// Nothing.
    Integers,
  };

  /// Makes `sums` take the integers of sub-blocks from the memory. Strips have
  /// `strip` tokens, and `depth` groups are shared at once.
  Strips(TileSums &sums, int64_t strip, int64_t depth, Shared shared);

  /// Emits all loops.
  void emit();

  /// The address of the memory for group g of a panel.
  Value placeOf(size_t panel, Value g);
  /// The bytes of `step` and vector `v` of the group at `place`, or their
  /// magnitudes.
  Value sharedBytes(Value place, int64_t step, int64_t v = 0,
                    bool magnitudes = false);
  /// Integer `number` of sub-block `sub`, for each vector.
  Values sharedIntegers(size_t panel, int64_t number, Value g, int64_t sub);
  /// The correction of the sum of a group's dots times sub-scales.
  Value sharedCorrection(size_t panel, Value g);

  const Shared shared;
  /// Maddubs takes weights without a sign: it multiplies their magnitudes with
  /// activations that have their signs.
  const bool takesMagnitudes;

private:
  void emitPanels(ArrayRef<Panel> panels, Value output);
  void shareGroup(const Panel &panel, size_t number, Value g);
  void shareBytes(Value chunks, Value to);
  void shareIntegers(Value header, Value inBlock, Value to);
  void shareCorrection(Value to);
  void addRun(ArrayRef<Value> tokens, Value block, Value last, Value held);

  TileSums &sums;
  Product &p = sums.p;
  ProductBuilder &b = sums.b;
  const Tile &tile = sums.tile;
  const int64_t strip, depth;

  static constexpr int64_t kWeightBytes = kGroup * kPanelOutputs;
  /// Bytes of an integer for each output.
  static constexpr int64_t kIntegerBytes = 4 * kPanelOutputs;
  /// The memory of a group has, in this order: weights by step and vector,
  /// their magnitudes, sub-scales and sub-minimums, the correction.
  const int64_t integerSets =
      p.divided ? p.subDots + scalesOf(p.format).numbers - 1 : 0;
  const int64_t integersAt =
      shared == Shared::Integers ? 0 : kWeightBytes * (takesMagnitudes ? 2 : 1);
  const int64_t correctionAt = integersAt + integerSets * kIntegerBytes;
  const int64_t groupBytes =
      correctionAt + (shared == Shared::SignedBytes ? kIntegerBytes : 0);
  /// Memory for these, from group `firstGroup` on, and for the sums of a strip.
  Value memory, firstGroup, totals;
};

/// Emits the dots of a group with its shared bytes.
void sharedDots(TileSums &sums, Strips &strips, const Group &group);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_STRIPS_H
