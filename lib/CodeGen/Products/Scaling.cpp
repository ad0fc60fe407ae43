//===- Scaling.cpp - Dots of integers to sums of floats -------------------===//

#include "Scaling.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace qwen;
using namespace mlir;

namespace {
/// A block has one number, its scale.
struct F16 : Scaling {
  int64_t count() const override { return 1; }

  Values scales(ProductBuilder &b, int64_t factor,
                llvm::function_ref<Value(int64_t)> number) const override {
    Value scale = number(0);
    if (factor == 1)
      return {scale};
    Value inverse = b.zeros(cast<VectorType>(scale.getType()), 1.0f / factor);
    return {arith::MulFOp::create(b, scale, inverse)};
  }

  Value add(ProductBuilder &b, Value dot, Value, ArrayRef<Value> scales,
            Value t) const override {
    return math::FmaOp::create(b, dot, scales[0], t);
  }
};

/// A scale and a minimum.
struct F16Minimum final : F16 {
  int64_t count() const override { return 2; }
  bool takesSums() const override { return true; }

  Values scales(ProductBuilder &b, int64_t factor,
                llvm::function_ref<Value(int64_t)> number) const override {
    Values numbers = F16::scales(b, factor, number);
    numbers.push_back(number(1));
    return numbers;
  }

  Value add(ProductBuilder &b, Value dot, Value sum, ArrayRef<Value> scales,
            Value t) const override {
    t = F16::add(b, dot, sum, scales, t);
    return math::FmaOp::create(b, sum, scales[1], t);
  }
};
} // namespace

const Scaling &qwen::scalingOf(WeightFormat format) {
  static const F16 f16;
  static const F16Minimum f16Minimum;
  if (scalesOf(format).hasMinimum())
    return f16Minimum;
  return f16;
}

Value qwen::subIntegers(ProductBuilder &b, WeightFormat format, Value header,
                        int64_t number, Value j,
                        function_ref<Value(Value)> load) {
  const ScaleInfo &scales = scalesOf(format);
  Value rows = b.at(header, panelNumberBytes(format) +
                                number * panelSubScaleBytes(format));
  auto loadRow = [&](Value row) {
    return load(b.at(rows, b.mul(row, kPanelOutputs)));
  };
  auto wordsOf = [&](Value bytes) {
    return b.vector(cast<VectorType>(bytes.getType()).getDimSize(0),
                    b.getI32Type());
  };
  if (scales.subBits == 8) {
    Value row = loadRow(j);
    return arith::ExtSIOp::create(b, wordsOf(row), row);
  }
  // `bits` bits of row `row`, whose place follows from the last bits of j.
  auto bitsOf = [&](Value row, int64_t last, int64_t bits) -> Value {
    Value bytes = loadRow(row);
    const VectorType words = wordsOf(bytes);
    Value place = b.mul(arith::AndIOp::create(b, j, b.integer(last)), bits);
    Value shift =
        b.splat(words, arith::TruncIOp::create(b, b.getI32Type(), place));
    Value value = arith::ShRUIOp::create(
        b, arith::ExtUIOp::create(b, words, bytes), shift);
    return arith::AndIOp::create(b, value, b.constant(words, (1 << bits) - 1));
  };
  Value lower = bitsOf(b.shiftRight(j, 1), 1, 4);
  Value upper = bitsOf(b.add(b.shiftRight(j, 2), b.integer(4)), 3, 2);
  const Type words = lower.getType();
  Value value = arith::OrIOp::create(
      b, lower, arith::ShLIOp::create(b, upper, b.constant(words, 4)));
  if (scales.subBias == 0)
    return value;
  return b.add(value, b.constant(words, -scales.subBias));
}
