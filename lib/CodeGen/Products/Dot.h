//===- Dot.h - Dots of integers in one group --------------------*- C++ -*-===//
//
// The part of products with quantized weights that differs by instruction set:
// dots of 4 weights of each output with 4 activations.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_DOT_H
#define QWEN_LIB_CODEGEN_PRODUCTS_DOT_H

#include "Unpack.h"

namespace qwen {

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
      Value start, Value factor = nullptr);

  /// w: i8 vector of weights. x: activations, -127..127. x86: the same 4 for
  /// every output. Arm: 16 in each 128 bits, of which word `word` counts;
  /// smmla: 8 of each token.
  void step(Value w, Value x, int64_t word);

  /// Makes LLVM add the products of the steps so far before those of later
  /// ones, which would take registers.
  void keepOrder();

  /// i32 for each output; of smmla, for each output and token.
  Value finish();

private:
  bool fits(int64_t count) const;
  void addProducts(Values products, int64_t each);
  Value product(Value w, Value x, int64_t from);
  Value widen(Value halves);
  void widenPairs();

  ProductBuilder &b;
  const DotKind kind;
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

/// |w| of bytes, of -128 as an unsigned 128, and x with the signs of w, on x86:
/// products of the two are those of w and x.
Value magnitudes(ProductBuilder &b, Value w);
Value withSigns(ProductBuilder &b, Value x, Value w);

/// sum + the products of the 4 bytes of each lane of `w` and `x`, which are
/// signed, where the instruction set has smmla.
Value addByteDots(ProductBuilder &b, const IsaInfo &isa, Value sum, Value w,
                  Value x);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_DOT_H
