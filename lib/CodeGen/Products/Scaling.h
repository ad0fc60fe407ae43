//===- Scaling.h - Dots of integers to sums of floats -----------*- C++ -*-===//
//
// The part of products with quantized weights that differs by the kind of
// scales: blocks have a scale, or a minimum or a zero point too, and sub-blocks
// have integers. docs/numerics.md defines t, the sum of a block of activations.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_SCALING_H
#define QWEN_LIB_CODEGEN_PRODUCTS_SCALING_H

#include "ProductBuilder.h"

namespace qwen {

class Scaling {
public:
  Scaling(ProductBuilder &b, WeightFormat format)
      : b(b), format(format), of(scalesOf(format)) {}

  /// Vectors of f32 that add() takes of a block.
  int64_t count() const { return of.numbers; }

  /// These vectors for bytes that are `factor` times the values. `number(i)` is
  /// number i of the block's header for each output, as f32.
  Values scales(int64_t factor, function_ref<Value(int64_t)> number) const;

  /// Whether add() takes sums of activations.
  bool takesSums() const { return of.numbers == 2; }

  /// t after a block, from t before it. `dot` is the exact sum of the products
  /// of bytes and activations, and `sum` the exact sum of the activations (null
  /// unless takesSums()), both as f32.
  Value add(Value dot, Value sum, ArrayRef<Value> scales, Value t) const;

  /// The sub-scales of sub-block `sub` of group `inBlock` of the block with
  /// this header, or, if `number` is 1, the sub-minimums: `vectors` vectors of
  /// i32, each of `lanes` outputs, from output `output` on.
  Values integers(Value header, int64_t number, Value inBlock, int64_t sub,
                  Value output, int64_t vectors, int64_t lanes) const;

private:
  ProductBuilder &b;
  const WeightFormat format;
  const ScaleInfo &of;
};

/// Sub-blocks of a group of 32, each with a dot of its own; 1 where all have
/// the same scales.
constexpr int64_t dotsOfGroup(WeightFormat format) {
  const ScaleInfo &scales = scalesOf(format);
  return scales.hasSubBlocks() ? kGroup / scales.subBlock : 1;
}

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_SCALING_H
