//===- ProductsDot.h - Dots of integers in one group ------------*- C++ -*-===//
//
// What instruction sets do differently in products with quantized weights: the
// dot of 4 weights of each output with 4 activations.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTSDOT_H
#define QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTSDOT_H

#include "ProductBuilder.h"

#include <memory>

namespace qwen {

/// The dots of one group of 32 for as many outputs as a vector has lanes: a
/// class for each row of QWEN_DOT that multiplies one token. A step multiplies
/// 4 weights of each output with 4 activations; 8 steps make the group. Weights
/// are 0..15 or, of 8 bits, -128..127 (0..255 where the dot takes unsigned
/// ones); activations -127..127.
class GroupDot {
public:
  virtual ~GroupDot() = default;

  /// w: i8 vector, 4 values for each output. x: the same activations for every
  /// output, or (SVE) 16 of them in each 128 bits, of which word `word` counts.
  virtual void step(Value w, Value x, int64_t word) = 0;

  /// Has LLVM add the products of the steps so far before those of others.
  virtual void keepOrder() = 0;

  /// i32 for each output.
  virtual Value finish() = 0;
};

/// The dots of `isa`, to which `start` (i32 for each output) is added; null is
/// zero.
std::unique_ptr<GroupDot> makeDot(ProductBuilder &b, KernelIsa isa,
                                  bool isEightBits, Value start);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTSDOT_H
