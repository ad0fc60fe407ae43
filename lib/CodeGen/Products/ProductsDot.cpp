//===- ProductsDot.cpp - Dots of integers in one group --------------------===//

#include "ProductsDot.h"
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

namespace {
/// Instructions that add to an accumulator. It begins with `start`, so that
/// this addition is free.
struct AccumulatingDot : GroupDot {
  AccumulatingDot(ProductBuilder &b, VectorType type, Value start)
      : b(b), type(type),
        sum(start ? start
                  : Value(arith::ConstantOp::create(b, b.getZeroAttr(type)))) {}

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

  void step(Value w, Value x, int64_t) override {
    sum = arm_neon::SdotOp::create(b, type, sum, w, x);
  }
};

struct SdotLane final : AccumulatingDot {
  using AccumulatingDot::AccumulatingDot;

  void step(Value w, Value x, int64_t word) override {
    Value index =
        arith::ConstantOp::create(b, b.getI32IntegerAttr(int32_t(word)));
    sum = b.intrinsic(type, "llvm.aarch64.sve.sdot.lane.nxv4i32",
                      {sum, w, x, index});
  }
};
/// Instructions that make sums of 16 bits, which widen to 32.
struct WideningDot : GroupDot {
  WideningDot(ProductBuilder &b, VectorType type, Value start, bool isEightBits)
      : b(b), type(type), start(start), isEightBits(isEightBits) {}

  void keepOrder() override {
    for (Values *sums : {&state, &pairs})
      for (Value &value : *sums)
        value = b.opaque(value);
  }
  Value finish() override {
    Value dot = total();
    return start ? Value(arith::AddIOp::create(b, dot, start)) : dot;
  }

  /// All steps, in 32 bits.
  virtual Value total() = 0;

  ProductBuilder &b;
  const VectorType type;
  const Value start;
  const bool isEightBits;
  /// Sums in 32 bits, and those in 16 that are still to be widened.
  Values state, pairs;
};

struct Maddubs final : WideningDot {
  using WideningDot::WideningDot;

  void step(Value w, Value x, int64_t) override {
    if (isEightBits) {
      // |w| <= 128 as unsigned, and w's sign on x: a pair is at most
      // 2 * 128 * 127 in magnitude, so the instruction never saturates.
      Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
      Value magnitude = b.intrinsic(w.getType(), "llvm.abs", {w, no});
      Value signedX = b.intrinsic(w.getType(), "llvm.x86.avx2.psign.b", {x, w});
      state = sum(b, state, {widen(pairProducts(magnitude, signedX))});
      return;
    }
    // A pair is at most 2 * 15 * 127 in magnitude, so the instruction never
    // saturates, and eight pairs fit in 16 bits.
    pairs = sum(b, pairs, {pairProducts(w, x)});
  }

  Value total() override { return isEightBits ? state[0] : widen(pairs[0]); }

  /// 16-bit sums of two products, `w` unsigned.
  Value pairProducts(Value w, Value x) {
    return b.intrinsic(b.vector(16, b.getI16Type()),
                       "llvm.x86.avx2.pmadd.ub.sw", {w, x});
  }
  /// Sums of two neighbours of 16 bits in 32.
  Value widen(Value halves) {
    Value ones = arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<VectorType>(halves.getType()),
                                  b.getI16IntegerAttr(1)));
    return b.intrinsic(type, "llvm.x86.avx2.pmadd.wd", {halves, ones});
  }
};

struct Smull final : WideningDot {
  using WideningDot::WideningDot;

  void step(Value w, Value x, int64_t) override {
    // A product is at most 15 * 127 in magnitude: eight fit in 16 bits. Of 8
    // bits it is at most 128 * 127, and two fit.
    pairs = sum(b, pairs, {product(w, x, 0), product(w, x, 8)});
    if (isEightBits && ++steps % 2 == 0) {
      state = sum(b, state, {widen(pairs[0]), widen(pairs[1])});
      pairs.clear();
    }
  }

  Value total() override {
    if (isEightBits)
      return b.intrinsic(type, "llvm.aarch64.neon.addp.v4i32",
                         {state[0], state[1]});
    // Sixteen products fit in 16 bits too: first pairs there, then to 32.
    return widen(b.intrinsic(b.vector(8, b.getI16Type()),
                             "llvm.aarch64.neon.addp.v8i16",
                             {pairs[0], pairs[1]}));
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
  /// Sums of two neighbours of 16 bits in 32.
  Value widen(Value halves) {
    return b.intrinsic(type, "llvm.aarch64.neon.saddlp.v4i32.v8i16", {halves});
  }

  int steps = 0;
};
} // namespace

std::unique_ptr<GroupDot> qwen::makeDot(ProductBuilder &b, KernelIsa isa,
                                        bool isEightBits, Value start) {
  const VectorType type = b.vector(isaInfo(isa).lanes, b.getI32Type());
  switch (isaInfo(isa).dot.kind) {
  case DotKind::Maddubs:
    return std::make_unique<Maddubs>(b, type, start, isEightBits);
  case DotKind::Vpdpbusd:
    return std::make_unique<Vpdpbusd>(b, type, start);
  case DotKind::Smull:
    return std::make_unique<Smull>(b, type, start, isEightBits);
  case DotKind::Sdot:
    return std::make_unique<Sdot>(b, type, start);
  case DotKind::SdotLane:
    return std::make_unique<SdotLane>(b, type, start);
  case DotKind::NoDot:
  case DotKind::TileDot:
  case DotKind::Smmla:
    break;
  }
  llvm_unreachable("these kernels have no dots of one token");
}
