//===- Scaling.cpp - Dots of integers to sums of floats -------------------===//

#include "Scaling.h"

using namespace qwen;
using namespace mlir;

Values Scaling::scales(int64_t factor,
                       function_ref<Value(int64_t)> numberOf) const {
  Values numbers;
  for (int64_t i = 0; i < count(); ++i) {
    Value number = numberOf(i);
    // The code keeps the factor of the sums of activations, -zero point.
    const bool isZero = i == 1 && of.hasZero;
    const float by = isZero ? float(-factor) : 1.0f / float(factor);
    if (isZero || (i == 0 && factor != 1))
      number = b.mulF(number, b.zeros(cast<VectorType>(number.getType()), by));
    numbers.push_back(number);
  }
  return numbers;
}

Value Scaling::add(Value dot, Value sum, ArrayRef<Value> scales,
                   Value t) const {
  if (of.hasZero)
    dot = b.fma(sum, scales[1], dot);
  t = b.fma(dot, scales[0], t);
  return takesSums() && !of.hasZero ? b.fma(sum, scales[1], t) : t;
}

/// `values` in lanes of `bits` bits.
static Value widened(ProductBuilder &b, Value values, bool isSigned,
                     unsigned bits) {
  const VectorType type =
      cast<VectorType>(values.getType()).clone(b.getIntegerType(bits));
  if (isSigned)
    return arith::ExtSIOp::create(b, type, values);
  return arith::ExtUIOp::create(b, type, values);
}

/// `bytes` as `vectors` vectors of i32: LLVM widens to i32 in few instructions
/// only in two steps.
static Values inTwoSteps(ProductBuilder &b, Value bytes, bool isSigned,
                         int64_t vectors) {
  Value integers = widened(b, bytes, isSigned, 16);
  const int64_t lanes =
      cast<VectorType>(integers.getType()).getDimSize(0) / vectors;
  Values result;
  for (int64_t v = 0; v < vectors; ++v) {
    Value part = LLVM::vector_extract::create(b, b.vector(lanes, b.i16),
                                              integers, v * lanes);
    result.push_back(widened(b, part, isSigned, 32));
  }
  return result;
}

/// Bytes 4 * v to 4 * v + 3 of a register of Arm as i32.
static Value inWords(ProductBuilder &b, Value bytes, bool isSigned, int64_t v) {
  const auto type = cast<VectorType>(bytes.getType());
  // The upper bytes of a word are signs, or zeros from places behind the table.
  Values tables = {bytes};
  if (isSigned)
    tables.push_back(arith::ShRSIOp::create(b, bytes, b.constant(type, 7)));
  SmallVector<int8_t> places(kPanelOutputs, -1);
  for (int64_t i = 0; i < kPanelOutputs; ++i)
    if (isSigned || i % 4 == 0)
      places[size_t(i)] =
          int8_t(4 * v + i / 4 + (i % 4 == 0 ? 0 : kPanelOutputs));
  tables.push_back(arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, ArrayRef<int8_t>(places))));
  Value words = b.intrinsic(type,
                            isSigned ? "llvm.aarch64.neon.tbl2.v16i8"
                                     : "llvm.aarch64.neon.tbl1.v16i8",
                            tables);
  return b.bitcast(b.vector(4, b.i32), words);
}

/// The integers that are stored as `value`.
static Value withoutBias(ProductBuilder &b, const ScaleInfo &scales,
                         Value value) {
  if (scales.subBias == 0)
    return value;
  return b.add(value, -scales.subBias);
}

/// Stored integers of 6 bits of 16 outputs, whose bytes loadRow() loads, by
/// Arm's shifts of bytes: the upper 2 bits move to the top of a byte, the lower
/// 4 to the top of another and then below them. A last shift drops what is left
/// of the row.
static Value movedBytes(ProductBuilder &b, Value j,
                        function_ref<Value(Value)> loadRow) {
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
static Value integersOf(ProductBuilder &b, const ScaleInfo &scales, Value j,
                        int64_t lanes, bool inBytes,
                        function_ref<Value(Value)> loadRow) {
  if (scales.subBits == 8)
    return widened(b, loadRow(j), true, 32);
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
      from = widened(b, from, false, 32);
    const auto type = cast<VectorType>(from.getType());
    Value place = b.mul(b.bitAnd(j, last), bits);
    Value value = b.shiftRight(
        from, b.splat(type, b.truncated(type.getElementType(), place)));
    if (to != 0)
      value = b.shiftLeft(value, to);
    const int64_t mask = ((1 << bits) - 1) << to;
    return b.bitAnd(value, inPairs ? mask * 0x0101 : mask);
  };
  Value lower = bitsOf(b.shiftRight(j, 1), 1, 4, 0);
  Value upper = bitsOf(b.add(b.shiftRight(j, 2), 4), 3, 2, 4);
  Value value = b.bitOr(lower, upper);
  if (inPairs)
    value = b.bitcast(b.vector(lanes, b.i8), value);
  return withoutBias(b, scales, value);
}

Values Scaling::integers(Value header, int64_t number, Value inBlock,
                         int64_t sub, Value output, int64_t vectors,
                         int64_t lanes) const {
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
          integersOf(b, of, j, lanes, false, rowsFrom(v * lanes, lanes)));
    return result;
  }
  const bool isSigned = of.subBias != 0;
  const auto rowBytes = rowsFrom(0, lanes * vectors);
  if (b.isArm() && !b.isScalable() && lanes * vectors == kPanelOutputs) {
    Value integers = withoutBias(b, of, movedBytes(b, j, rowBytes));
    for (int64_t v = 0; v < vectors; ++v)
      result.push_back(inWords(b, integers, isSigned, v));
    return result;
  }
  Value integers = integersOf(b, of, j, lanes * vectors, true, rowBytes);
  if (vectors == 1)
    return {widened(b, integers, isSigned, 32)};
  return inTwoSteps(b, integers, isSigned, vectors);
}
