//===- ProductsDot.h - Dots of integers in one group ------------*- C++ -*-===//
//
// What instruction sets do differently in products with quantized weights: the
// dot of 4 weights of each output with 4 activations.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTSDOT_H
#define QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTSDOT_H

#include "ProductBuilder.h"

namespace qwen {

/// Whether int8 weights are multiplied as unsigned bytes, plus 128.
inline bool isUnsignedDot(KernelIsa isa) {
  return isa == KernelIsa::AVXVNNI || isa == KernelIsa::AVX512VNNI;
}

/// The dots of one group of 32 for as many outputs as a vector has lanes. A
/// step multiplies 4 weights of each output with 4 activations; 8 steps make
/// the group. Weights are 0..15 or, of 8 bits, -128..127 (0..255 where
/// isUnsignedDot); activations -127..127.
class GroupDot {
public:
  GroupDot(ProductBuilder &b, KernelIsa isa, bool eightBits)
      : b(b), isa(isa), eightBits(eightBits), lanes(vectorLanes(isa)),
        sumType(b.vector(lanes, b.getI32Type())) {}

  /// `value` (i32 for each output) is added to the dots; null is zero.
  void start(Value value);

  /// w: i8 vector, 4 values for each output. x: the same activations for every
  /// output, or (SVE) 16 of them in each 128 bits, of which word `word` counts.
  void step(Value w, Value x, int64_t word);

  /// Has LLVM add the products of the steps so far before those of others.
  void keepOrder();

  /// i32 for each output.
  Value finish();

private:
  /// NEON: 16-bit products of 8 of 16 bytes.
  Value product(Value w, Value x, int64_t from);
  /// AVX2: 16-bit sums of two products, `w` unsigned.
  Value pairProducts(Value w, Value x);
  /// Sums of two neighbours of 16 bits in 32.
  Value widen(Value halves);
  Value plusOffset(Value dot);

  ProductBuilder &b;
  KernelIsa isa;
  bool eightBits;
  int64_t lanes;
  mlir::VectorType sumType;
  Value offset;
  /// Sums in 32 bits, and those in 16 that are still to be widened.
  Values state, pairs;
  int steps = 0;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTSDOT_H
