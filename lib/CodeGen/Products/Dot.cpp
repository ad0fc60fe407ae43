//===- Dot.cpp - Dots of integers in one group ----------------------------===//

#include "Dot.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/ErrorHandling.h"

using namespace qwen;
using namespace mlir;

/// Element by element; nothing is zero.
static Values sum(ProductBuilder &b, const Values &old, Values values) {
  if (!old.empty())
    for (auto [value, before] : llvm::zip_equal(values, old))
      value = arith::AddIOp::create(b, before, value);
  return values;
}

/// Word `word` of 16 activations in all words.
static Value splatWord(ProductBuilder &b, Value x, int64_t word) {
  const VectorType words = b.vector(4, b.getI32Type());
  Value four = vector::BitCastOp::create(b, words, x);
  Value one = vector::ExtractOp::create(b, four, word);
  return vector::BitCastOp::create(b, cast<VectorType>(x.getType()),
                                   b.splat(words, one));
}

namespace {
/// Instructions that add to an accumulator. It begins with `start`, so that
/// this addition is free.
struct AccumulatingDot : Dot {
  AccumulatingDot(ProductBuilder &b, VectorType type, Value start)
      : b(b), type(type), sum(start ? start : b.constant(type, 0)) {}

  void keepOrder() override { sum = b.opaque(sum); }
  Value finish() override { return sum; }

  ProductBuilder &b;
  const VectorType type;
  Value sum;
};

struct Vpdpbusd final : AccumulatingDot {
  using AccumulatingDot::AccumulatingDot;

  void step(Value w, Value x, int64_t) override {
    sum = b.intrinsic(type,
                      type.getNumElements() == 16
                          ? "llvm.x86.avx512.vpdpbusd.512"
                          : "llvm.x86.avx512.vpdpbusd.256",
                      {sum, w, x});
  }
};

struct Sdot final : AccumulatingDot {
  using AccumulatingDot::AccumulatingDot;

  // sdot takes one of a register's four words as an operand.
  void step(Value w, Value x, int64_t word) override {
    sum = arm_neon::SdotOp::create(b, type, sum, w, splatWord(b, x, word));
  }
};

struct SdotLane final : AccumulatingDot {
  using AccumulatingDot::AccumulatingDot;

  void step(Value w, Value x, int64_t word) override {
    Values operands;
    for (Value operand : {sum, w, x})
      operands.push_back(b.inScalable(operand));
    operands.push_back(b.constant(b.getI32Type(), word));
    sum = b.intrinsic(operands[0].getType(),
                      "llvm.aarch64.sve.sdot.lane.nxv4i32", operands);
    if (!b.isScalable())
      sum = vector::ScalableExtractOp::create(b, type, sum, 0);
  }
};

struct Smmla final : AccumulatingDot {
  using AccumulatingDot::AccumulatingDot;

  void step(Value w, Value x, int64_t) override {
    sum = b.isScalable()
              ? b.intrinsic(type, "llvm.aarch64.sve.smmla.nxv4i32", {sum, x, w})
              : Value(arm_neon::SmmlaOp::create(b, type, sum, x, w));
  }
};

/// Instructions that make sums of 16 bits, which widen to 32.
struct WideningDot : Dot {
  WideningDot(ProductBuilder &b, VectorType type, Value start,
              const ByteRange &weights)
      : b(b), type(type), start(start), weights(weights) {}

  void keepOrder() override {
    for (Values *sums : {&state, &pairs})
      for (Value &value : *sums)
        value = b.opaque(value);
  }
  Value finish() override {
    Value dot = total();
    return start ? Value(arith::AddIOp::create(b, dot, start)) : dot;
  }

  /// Whether 16 bits hold the sum of `count` products.
  bool fits(int64_t count) const {
    return count * 127 * std::max(-weights.least, weights.most) <= INT16_MAX;
  }
  /// Adds products of a step, of which a sum takes `each`.
  void addStep(Values products, int64_t each) {
    pairs = sum(b, pairs, std::move(products));
    ++steps;
    if (!fits(each * kGroup / 4) && !fits(each * (steps + 1)))
      widenPairs();
  }
  void widenPairs() {
    for (Value &value : pairs)
      value = widen(value);
    state = sum(b, state, std::move(pairs));
    pairs.clear();
    steps = 0;
  }

  /// Sums of two neighbours of 16 bits in 32.
  virtual Value widen(Value halves) = 0;
  /// All steps, in 32 bits.
  virtual Value total() = 0;

  ProductBuilder &b;
  const VectorType type;
  const Value start;
  const ByteRange weights;
  /// Sums in 32 bits, and those in 16 that are still to be widened, of `steps`.
  Values state, pairs;
  int64_t steps = 0;
};

struct Maddubs final : WideningDot {
  Maddubs(ProductBuilder &b, VectorType type, Value start,
          const ByteRange &weights, Value factor)
      : WideningDot(b, type, nullptr, weights), factor(factor) {
    if (start)
      state = {start};
  }

  // Products are added in pairs, which never saturate: they are at most
  // 2 * 128 * 127 in magnitude.
  void step(Value w, Value x, int64_t) override {
    if (weights.least < 0) {
      Value magnitude = magnitudes(b, w);
      x = withSigns(b, x, w);
      w = magnitude;
    }
    addStep({b.intrinsic(b.vector(16, b.getI16Type()),
                         "llvm.x86.avx2.pmadd.ub.sw", {w, x})},
            2);
  }

  Value total() override {
    if (!pairs.empty())
      widenPairs();
    return state[0];
  }

  Value widen(Value halves) override {
    return b.intrinsic(
        type, "llvm.x86.avx2.pmadd.wd",
        {halves, factor ? factor : b.constant(halves.getType(), 1)});
  }

  const Value factor;
};

struct Smull final : WideningDot {
  using WideningDot::WideningDot;

  void step(Value w, Value x, int64_t word) override {
    x = splatWord(b, x, word);
    addStep({product(w, x, 0), product(w, x, 8)}, 1);
  }

  Value total() override {
    // Where the products of all steps fit, so do pairs of their sums.
    if (fits(kGroup / 2))
      return widen(b.intrinsic(pairs[0].getType(),
                               "llvm.aarch64.neon.addp.v8i16", pairs));
    if (!pairs.empty())
      widenPairs();
    return b.intrinsic(type, "llvm.aarch64.neon.addp.v4i32", state);
  }

  /// 16-bit products of 8 of 16 bytes.
  Value product(Value w, Value x, int64_t from) {
    auto half = [&](Value bytes) -> Value {
      return vector::ExtractStridedSliceOp::create(
          b, bytes, ArrayRef<int64_t>{from}, ArrayRef<int64_t>{8},
          ArrayRef<int64_t>{1});
    };
    return arm_neon::SMullOp::create(b, b.vector(8, b.getI16Type()), half(w),
                                     half(x));
  }

  Value widen(Value halves) override {
    return b.intrinsic(type, "llvm.aarch64.neon.saddlp.v4i32.v8i16", {halves});
  }
};
} // namespace

Value qwen::magnitudes(ProductBuilder &b, Value w) {
  return b.intrinsic(w.getType(), "llvm.abs",
                     {w, b.constant(b.getI1Type(), 0)});
}

Value qwen::withSigns(ProductBuilder &b, Value x, Value w) {
  return b.intrinsic(x.getType(), "llvm.x86.avx2.psign.b", {x, w});
}

std::unique_ptr<Dot> qwen::makeDot(ProductBuilder &b, const IsaInfo &isa,
                                   const ByteRange &weights, Value start,
                                   Value factor) {
  const VectorType type = b.vector(isa.lanes, b.getI32Type());
  switch (isa.dot.kind) {
  case DotKind::Maddubs:
    return std::make_unique<Maddubs>(b, type, start, weights, factor);
  case DotKind::Vpdpbusd:
    return std::make_unique<Vpdpbusd>(b, type, start);
  case DotKind::Smull:
    return std::make_unique<Smull>(b, type, start, weights);
  case DotKind::Sdot:
    return std::make_unique<Sdot>(b, type, start);
  case DotKind::SdotLane:
    return std::make_unique<SdotLane>(b, type, start);
  case DotKind::Smmla:
    return std::make_unique<Smmla>(b, type, start);
  case DotKind::NoDot:
  case DotKind::TileDot:
    break;
  }
  // These kernels have no dots of one group.
  __builtin_unreachable();
}

Value qwen::addByteDots(ProductBuilder &b, const IsaInfo &isa, Value sum,
                        Value w, Value x) {
  const auto type = cast<VectorType>(sum.getType());
  if (!isa.isScalable)
    return arm_neon::SdotOp::create(b, type, sum, w, x);
  Values operands;
  for (Value operand : {sum, w, x})
    operands.push_back(b.inScalable(operand));
  Value result = b.intrinsic(operands[0].getType(),
                             "llvm.aarch64.sve.sdot.nxv4i32", operands);
  if (b.isScalable())
    return result;
  return vector::ScalableExtractOp::create(b, type, result, 0);
}
