//===- Dot.h - Dots of integers in one group --------------------*- C++ -*-===//
//
// The part of products with quantized weights that differs by instruction set:
// dots of 4 weights of each output with 4 activations.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_DOT_H
#define QWEN_LIB_CODEGEN_PRODUCTS_DOT_H

#include "Unpack.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"

namespace qwen {

/// |w| of bytes, on x86; -128 becomes an unsigned 128. The products of |w| with
/// x that has the signs of w are the products of w and x.
inline Value magnitudes(ProductBuilder &b, Value w) {
  return b.intrinsic(w.getType(), "llvm.abs",
                     {w, b.constant(b.getI1Type(), 0)});
}
inline Value withSigns(ProductBuilder &b, Value x, Value w) {
  return b.intrinsic(x.getType(), "llvm.x86.avx2.psign.b", {x, w});
}

/// The dots of one group of 32 for as many outputs as a vector has lanes, with
/// the instructions of any row of QWEN_DOT but AMX's. A step multiplies 4
/// weights of each output with 4 activations; 8 steps make the group. smmla
/// multiplies 8 weights of two outputs in each 128 bits with 8 activations of
/// two tokens, in 4 steps.
class Dot {
public:
  /// The dots of `isa` with weights of this range, to which `start` (i32 for
  /// each output) is added; null is zero. Maddubs multiplies them with `factor`
  /// (i16, twice for each output), in the instruction that widens sums; null is
  /// 1.
  Dot(ProductBuilder &b, const IsaInfo &isa, const ByteRange &weights,
      Value start, Value factor = nullptr)
      : b(b), isa(isa), type(b.vector(isa.lanes, b.i32)), weights(weights),
        factor(factor) {
    // An accumulator begins with `start`, so that this addition is free.
    if (kind == DotKind::Smull)
      rest = start;
    else if (start)
      state = {start};
    else if (kind != DotKind::Maddubs)
      state = {b.constant(type, 0)};
  }

  /// w: i8 vector of weights. x: activations, -127..127. x86: the same 4 for
  /// every output. Arm: 16 in each 128 bits, but only word `word` counts;
  /// smmla: 8 of each token.
  void step(Value w, Value x, int64_t word) {
    switch (kind) {
    case DotKind::Vpdpbusd:
      state[0] = b.intrinsic(type,
                             type.getNumElements() == 16
                                 ? "llvm.x86.avx512.vpdpbusd.512"
                                 : "llvm.x86.avx512.vpdpbusd.256",
                             {state[0], w, x});
      return;
    case DotKind::Sdot:
      // sdot takes one of a register's four words as an operand.
      state[0] = mlir::arm_neon::SdotOp::create(b, type, state[0], w,
                                                splatWord(x, word));
      return;
    case DotKind::SdotLane:
      state[0] = inScalable("llvm.aarch64.sve.sdot.lane.nxv4i32",
                            {state[0], w, x}, b.constant(b.i32, word));
      return;
    case DotKind::Smmla:
      state[0] =
          b.isScalable()
              ? b.intrinsic(type, "llvm.aarch64.sve.smmla.nxv4i32",
                            {state[0], x, w})
              : Value(mlir::arm_neon::SmmlaOp::create(b, type, state[0], x, w));
      return;
    case DotKind::Maddubs:
      if (weights.least < 0) {
        Value magnitude = magnitudes(b, w);
        x = withSigns(b, x, w);
        w = magnitude;
      }
      // Products are added in pairs, which never saturate: they are at most
      // 2 * 128 * 127 in magnitude.
      return addProducts({b.intrinsic(b.vector(16, b.i16),
                                      "llvm.x86.avx2.pmadd.ub.sw", {w, x})},
                         2);
    case DotKind::Smull:
      x = splatWord(x, word);
      return addProducts({product(w, x, 0), product(w, x, 8)}, 1);
    case DotKind::NoDot:
    case DotKind::TileDot:
      break;
    }
    // These kernels have no dots of one group.
    __builtin_unreachable();
  }

  /// Makes LLVM add the products of the steps so far before the products of
  /// later steps, which would take registers.
  void keepOrder() {
    for (Values *sums : {&state, &pairs})
      for (Value &value : *sums)
        value = b.opaque(value);
  }

  /// i32 for each output; of smmla, for each output and token.
  Value finish() {
    // Where the products of all steps fit, so do pairs of their sums.
    if (kind == DotKind::Smull && fits(kGroup / 2))
      state = {widen(b.intrinsic(pairs[0].getType(),
                                 "llvm.aarch64.neon.addp.v8i16", pairs))};
    else if (!pairs.empty())
      widenPairs();
    if (state.size() == 2)
      state = {b.intrinsic(type, "llvm.aarch64.neon.addp.v4i32", state)};
    return rest ? b.add(state[0], rest) : state[0];
  }

  /// Adds the products of the 4 signed bytes of each lane of `w` and `x`, where
  /// the instruction set has smmla.
  Value addBytes(Value w, Value x) {
    if (isa.isScalable)
      return inScalable("llvm.aarch64.sve.sdot.nxv4i32", {state[0], w, x});
    return mlir::arm_neon::SdotOp::create(b, type, state[0], w, x);
  }

private:
  /// Word `word` of 16 activations in all words.
  Value splatWord(Value x, int64_t word) {
    const VectorType words = b.vector(4, b.i32);
    Value one = mlir::vector::ExtractOp::create(b, b.bitcast(words, x), word);
    return b.bitcast(cast<VectorType>(x.getType()), b.splat(words, one));
  }

  /// An instruction of SVE on 128 bits or more.
  Value inScalable(StringRef name, ArrayRef<Value> vectors,
                   ValueRange others = {}) {
    Values operands;
    for (Value vector : vectors)
      operands.push_back(b.inScalable(vector));
    operands.append(others.begin(), others.end());
    Value result = b.intrinsic(operands[0].getType(), name, operands);
    if (b.isScalable())
      return result;
    return mlir::vector::ScalableExtractOp::create(b, type, result, 0);
  }

  /// Whether 16 bits hold the sum of `count` products.
  bool fits(int64_t count) const {
    return count * 127 * std::max(-weights.least, weights.most) <= INT16_MAX;
  }

  /// Adds the products of a step. A sum of 16 bits takes `each` of them.
  void addProducts(ArrayRef<Value> products, int64_t each) {
    addTo(pairs, products);
    ++steps;
    if (!fits(each * kGroup / 4) && !fits(each * (steps + 1)))
      widenPairs();
  }

  /// Element by element; no sums are zeros.
  void addTo(Values &sums, ArrayRef<Value> values) {
    if (sums.empty())
      sums.append(values.begin(), values.end());
    else
      for (auto [sum, value] : llvm::zip_equal(sums, values))
        sum = b.add(sum, value);
  }

  /// 16-bit products of 8 of 16 bytes.
  Value product(Value w, Value x, int64_t from) {
    auto half = [&](Value bytes) -> Value {
      return mlir::vector::ExtractStridedSliceOp::create(
          b, bytes, ArrayRef<int64_t>{from}, ArrayRef<int64_t>{8},
          ArrayRef<int64_t>{1});
    };
    return mlir::arm_neon::SMullOp::create(b, b.vector(8, b.i16), half(w),
                                           half(x));
  }

  /// Sums of two neighbours of 16 bits in 32.
  Value widen(Value halves) {
    if (kind == DotKind::Smull)
      return b.intrinsic(type, "llvm.aarch64.neon.saddlp.v4i32.v8i16",
                         {halves});
    return b.intrinsic(
        type, "llvm.x86.avx2.pmadd.wd",
        {halves, factor ? factor : b.constant(halves.getType(), 1)});
  }

  void widenPairs() {
    for (Value &value : pairs)
      value = widen(value);
    addTo(state, pairs);
    pairs.clear();
    steps = 0;
  }

  ProductBuilder &b;
  const IsaInfo &isa;
  const DotKind kind = isa.dot.kind;
  const VectorType type;
  const ByteRange weights;
  /// The start value that finish() adds, where no instruction adds to it; else
  /// null.
  Value rest;
  const Value factor;
  /// Sums in 32 bits, and those in 16 that are still to be widened, of `steps`.
  Values state, pairs;
  int64_t steps = 0;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_DOT_H
