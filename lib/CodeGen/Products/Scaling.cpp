//===- Scaling.cpp - Dots of integers to sums of floats -------------------===//

#include "Scaling.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/ErrorHandling.h"

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
  switch (infoOf(format).scales) {
  case ScaleKind::F16:
    return f16;
  case ScaleKind::F16Minimum:
    return f16Minimum;
  case ScaleKind::None:
    break;
  }
  llvm_unreachable("floats have no scales");
}
