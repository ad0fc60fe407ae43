//===- ProductsDot.cpp - Dots of integers in one group --------------------===//

#include "ProductsDot.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace qwen;
using namespace mlir;

void GroupDot::start(Value value) {
  // These instructions add to an accumulator, so the addition is free.
  if (isUnsignedDot(isa) || isa == KernelIsa::NEONDotProd ||
      isa == KernelIsa::SVE)
    state = {value
                 ? value
                 : Value(arith::ConstantOp::create(b, b.getZeroAttr(sumType)))};
  else
    offset = value;
}

/// Element by element; nothing is zero.
static Values sum(ProductBuilder &b, const Values &old, Values values) {
  if (!old.empty())
    for (auto [value, before] : llvm::zip_equal(values, old))
      value = arith::AddIOp::create(b, before, value);
  return values;
}

void GroupDot::step(Value w, Value x, int64_t word) {
  switch (isa) {
  case KernelIsa::AVXVNNI:
    state[0] =
        b.intrinsic(sumType, "llvm.x86.avx512.vpdpbusd.256", {state[0], w, x});
    return;
  case KernelIsa::AVX512VNNI:
    state[0] =
        b.intrinsic(sumType, "llvm.x86.avx512.vpdpbusd.512", {state[0], w, x});
    return;
  case KernelIsa::NEONDotProd:
    state[0] = arm_neon::SdotOp::create(b, sumType, state[0], w, x);
    return;
  case KernelIsa::SVE: {
    Value index =
        arith::ConstantOp::create(b, b.getI32IntegerAttr(int32_t(word)));
    state[0] = b.intrinsic(sumType, "llvm.aarch64.sve.sdot.lane.nxv4i32",
                           {state[0], w, x, index});
    return;
  }
  case KernelIsa::NEON:
    // A product is at most 15 * 127 in magnitude: eight fit in 16 bits. Of 8
    // bits it is at most 128 * 127, and two fit.
    pairs = sum(b, pairs, {product(w, x, 0), product(w, x, 8)});
    if (eightBits && ++steps % 2 == 0) {
      state = sum(b, state, {widen(pairs[0]), widen(pairs[1])});
      pairs.clear();
    }
    return;
  default:
    if (eightBits) {
      // |w| <= 128 as unsigned, and w's sign on x: a pair is at most
      // 2 * 128 * 127 in magnitude, so the instruction never saturates.
      const VectorType bytes = b.vector(4 * lanes, b.getI8Type());
      Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
      Value magnitude = b.intrinsic(bytes, "llvm.abs", {w, no});
      Value signedX = b.intrinsic(bytes, "llvm.x86.avx2.psign.b", {x, w});
      state = sum(b, state, {widen(pairProducts(magnitude, signedX))});
      return;
    }
    // A pair is at most 2 * 15 * 127 in magnitude, so the instruction never
    // saturates, and eight pairs fit in 16 bits.
    pairs = sum(b, pairs, {pairProducts(w, x)});
    return;
  }
}

void GroupDot::keepOrder() {
  for (Values *sums : {&state, &pairs})
    for (Value &value : *sums)
      value = b.opaque(value);
}

Value GroupDot::finish() {
  if (isa == KernelIsa::AVX2)
    return plusOffset(eightBits ? state[0] : widen(pairs[0]));
  if (isa == KernelIsa::NEON && eightBits)
    return plusOffset(b.intrinsic(sumType, "llvm.aarch64.neon.addp.v4i32",
                                  {state[0], state[1]}));
  if (isa == KernelIsa::NEON)
    // Sixteen products fit in 16 bits too: first pairs there, then to 32.
    return plusOffset(widen(b.intrinsic(b.vector(8, b.getI16Type()),
                                        "llvm.aarch64.neon.addp.v8i16",
                                        {pairs[0], pairs[1]})));
  return state[0];
}

Value GroupDot::product(Value w, Value x, int64_t from) {
  auto half = [&](Value bytes) -> Value {
    return vector::ExtractStridedSliceOp::create(
        b, bytes, ArrayRef<int64_t>{from}, ArrayRef<int64_t>{8},
        ArrayRef<int64_t>{1});
  };
  return arm_neon::SMullOp::create(b, b.vector(8, b.getI16Type()), half(w),
                                   half(x));
}

Value GroupDot::pairProducts(Value w, Value x) {
  return b.intrinsic(b.vector(16, b.getI16Type()), "llvm.x86.avx2.pmadd.ub.sw",
                     {w, x});
}

Value GroupDot::widen(Value halves) {
  if (isa == KernelIsa::NEON)
    return b.intrinsic(sumType, "llvm.aarch64.neon.saddlp.v4i32.v8i16",
                       {halves});
  Value ones = arith::ConstantOp::create(
      b, DenseElementsAttr::get(cast<VectorType>(halves.getType()),
                                b.getI16IntegerAttr(1)));
  return b.intrinsic(sumType, "llvm.x86.avx2.pmadd.wd", {halves, ones});
}

Value GroupDot::plusOffset(Value dot) {
  return offset ? Value(arith::AddIOp::create(b, dot, offset)) : dot;
}
