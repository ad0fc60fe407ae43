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

/// Sub-blocks of a group of 32, each with a dot of its own; 1 where all have
/// the same scales.
constexpr int64_t dotsOfGroup(WeightFormat format) {
  const ScaleInfo &scales = scalesOf(format);
  return scales.hasSubBlocks() ? kGroup / scales.subBlock : 1;
}

class Scaling {
public:
  Scaling(ProductBuilder &b, WeightFormat format)
      : b(b), format(format), of(scalesOf(format)) {}

  /// Vectors of f32 that add() takes of a block.
  int64_t count() const { return of.numbers; }

  /// These vectors for bytes that are `factor` times the values. `number(i)` is
  /// number i of the block's header for each output, as f32.
  Values scales(int64_t factor, function_ref<Value(int64_t)> number) const {
    Values numbers;
    for (int64_t i = 0; i < count(); ++i) {
      Value value = number(i);
      // The code keeps the factor of the sums of activations, -zero point.
      const bool isZero = i == 1 && of.hasZero;
      const float by = isZero ? float(-factor) : 1.0f / float(factor);
      if (isZero || (i == 0 && factor != 1))
        value = b.mulF(value, b.zeros(cast<VectorType>(value.getType()), by));
      numbers.push_back(value);
    }
    return numbers;
  }

  /// Whether add() takes sums of activations.
  bool takesSums() const { return of.numbers == 2; }

  /// t after a block, from t before it. `dot` is the exact sum of the products
  /// of bytes and activations, and `sum` the exact sum of the activations (null
  /// unless takesSums()), both as f32.
  Value add(Value dot, Value sum, ArrayRef<Value> scales, Value t) const {
    if (of.hasZero)
      dot = b.fma(sum, scales[1], dot);
    t = b.fma(dot, scales[0], t);
    return takesSums() && !of.hasZero ? b.fma(sum, scales[1], t) : t;
  }

  /// The sub-scales of sub-block `sub` of group `inBlock` of the block with
  /// this header, or, if `number` is 1, the sub-minimums: `vectors` vectors of
  /// i32, each of `lanes` outputs, from output `output` on.
  Values integers(Value header, int64_t number, Value inBlock, int64_t sub,
                  Value output, int64_t vectors, int64_t lanes) const {
    Value j = b.add(b.mul(inBlock, dotsOfGroup(format)), sub);
    Value rows = b.at(b.at(header, panelNumberBytes(format) +
                                       number * panelSubScaleBytes(format)),
                      output);
    auto rowsFrom = [&](int64_t first, int64_t count) {
      return [this, rows, first, count](Value row) {
        return b.load(b.vector(count, b.i8),
                      b.at(b.at(rows, row, kPanelOutputs), b.scaled(first)));
      };
    };
    // Whole bytes have no bits to move, and the bits of few outputs move in the
    // lanes that they are loaded into.
    Values result;
    if (of.subBits == 8 || lanes * vectors < 8) {
      for (int64_t v = 0; v < vectors; ++v)
        result.push_back(
            integersOf(j, lanes, false, rowsFrom(v * lanes, lanes)));
      return result;
    }
    const bool isSigned = of.subBias != 0;
    const auto rowBytes = rowsFrom(0, lanes * vectors);
    if (b.isArm() && !b.isScalable() && lanes * vectors == kPanelOutputs) {
      Value integers = b.add(movedBytes(j, rowBytes), -of.subBias);
      for (int64_t v = 0; v < vectors; ++v)
        result.push_back(inWords(integers, isSigned, v));
      return result;
    }
    Value integers = integersOf(j, lanes * vectors, true, rowBytes);
    if (vectors == 1)
      return {widened(integers, isSigned, 32)};
    return inTwoSteps(integers, isSigned, vectors);
  }

private:
  /// `values` in lanes of `bits` bits.
  Value widened(Value values, bool isSigned, unsigned bits) const {
    const VectorType type =
        cast<VectorType>(values.getType()).clone(b.getIntegerType(bits));
    if (isSigned)
      return arith::ExtSIOp::create(b, type, values);
    return arith::ExtUIOp::create(b, type, values);
  }

  /// `bytes` as `vectors` vectors of i32: LLVM widens to i32 in few
  /// instructions only in two steps.
  Values inTwoSteps(Value bytes, bool isSigned, int64_t vectors) const {
    Value integers = widened(bytes, isSigned, 16);
    const int64_t lanes =
        cast<VectorType>(integers.getType()).getDimSize(0) / vectors;
    Values result;
    for (int64_t v = 0; v < vectors; ++v) {
      Value part = LLVM::vector_extract::create(b, b.vector(lanes, b.i16),
                                                integers, v * lanes);
      result.push_back(widened(part, isSigned, 32));
    }
    return result;
  }

  /// Bytes 4 * v to 4 * v + 3 of a register of Arm as i32.
  Value inWords(Value bytes, bool isSigned, int64_t v) const {
    const auto type = cast<VectorType>(bytes.getType());
    // The upper bytes of a word are signs, or zeros from places behind the
    // table.
    Values tables = {bytes};
    if (isSigned)
      tables.push_back(arith::ShRSIOp::create(b, bytes, b.constant(type, 7)));
    SmallVector<int8_t> places(kPanelOutputs, -1);
    for (int64_t i = 0; i < kPanelOutputs; ++i)
      if (isSigned || i % 4 == 0)
        places[size_t(i)] =
            int8_t(4 * v + i / 4 + (i % 4 == 0 ? 0 : kPanelOutputs));
    tables.push_back(arith::ConstantOp::create(
        b, mlir::DenseElementsAttr::get(type, ArrayRef<int8_t>(places))));
    Value words = b.intrinsic(type,
                              isSigned ? "llvm.aarch64.neon.tbl2.v16i8"
                                       : "llvm.aarch64.neon.tbl1.v16i8",
                              tables);
    return b.bitcast(b.vector(4, b.i32), words);
  }

  /// Stored integers of 6 bits of 16 outputs, whose bytes loadRow() loads, by
  /// Arm's shifts of bytes: the upper 2 bits move to the top of a byte, the
  /// lower 4 to the top of another and then below them. A last shift drops what
  /// is left of the row.
  Value movedBytes(Value j, function_ref<Value(Value)> loadRow) const {
    // The `bits` bits of a row whose place follows from the last bits of j.
    auto atTop = [&](Value row, int64_t last, int64_t bits) -> Value {
      Value from = loadRow(row);
      const auto type = cast<VectorType>(from.getType());
      Value place = b.mul(b.bitAnd(j, last), bits);
      Value distance = b.sub(b.integer(8 - bits), place);
      return b.shiftLeft(from, b.splat(type, b.truncated(b.i8, distance)));
    };
    Value lower = atTop(b.shiftRight(j, 1), 1, 4);
    Value upper = atTop(b.add(b.shiftRight(j, 2), 4), 3, 2);
    Value both = b.shiftedInto(upper, lower, 2, false);
    return b.shiftRight(both, 2);
  }

  /// Integers of the outputs whose bytes loadRow() loads: as bytes, or as i32.
  Value integersOf(Value j, int64_t lanes, bool inBytes,
                   function_ref<Value(Value)> loadRow) const {
    if (of.subBits == 8)
      return widened(loadRow(j), true, 32);
    // x86 has no shift of bytes, so bytes move in pairs.
    const bool inPairs = inBytes && !b.isScalable();
    // The bits of row `row` whose place follows from the last bits of j, at bit
    // `to`.
    auto bitsOf = [&](Value row, int64_t last, int64_t bits,
                      int64_t to) -> Value {
      Value from = loadRow(row);
      if (inPairs)
        from = b.bitcast(b.vector(lanes / 2, b.i16), from);
      else if (!inBytes)
        from = widened(from, false, 32);
      const auto type = cast<VectorType>(from.getType());
      Value place = b.mul(b.bitAnd(j, last), bits);
      Value value = b.shiftRight(
          from, b.splat(type, b.truncated(type.getElementType(), place)));
      value = b.shiftLeft(value, to);
      const int64_t mask = ((1 << bits) - 1) << to;
      return b.bitAnd(value, inPairs ? mask * 0x0101 : mask);
    };
    Value lower = bitsOf(b.shiftRight(j, 1), 1, 4, 0);
    Value upper = bitsOf(b.add(b.shiftRight(j, 2), 4), 3, 2, 4);
    Value value = b.bitOr(lower, upper);
    if (inPairs)
      value = b.bitcast(b.vector(lanes, b.i8), value);
    return b.add(value, -of.subBias);
  }

  ProductBuilder &b;
  const WeightFormat format;
  const ScaleInfo &of;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_SCALING_H
