//===- LinearArguments.h - Arguments of products with a matrix --*- C++ -*-===//
//
// What the emitters of LinearF32Fn and LinearQ8Fn share: the function's
// arguments, and what is done with the sums of a tile.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_LINEARARGUMENTS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_LINEARARGUMENTS_H

#include "ProductBuilder.h"

namespace qwen {

/// 1.5 * 2^23. An i32 below 2^22 in magnitude, added to its bits, gives the
/// float that is as much larger: a dot that starts from these bits becomes a
/// float by one subtraction, which is exact and gives +0 for 0. Arm's
/// conversion takes the slots of two.
inline constexpr float kMagic = 12582912.0f;

/// The types of the arguments of LinearF32Fn or LinearQ8Fn.
llvm::SmallVector<Type> linearSignature(const KernelInfo &kernel,
                                        mlir::MLIRContext *context);

/// The arguments of LinearF32Fn (whose x is `q`) or LinearQ8Fn.
struct LinearArguments {
  LinearArguments(ProductBuilder &b, KernelFormat format);

  /// Bytes of a panel of the matrix.
  Value panelStride(ProductBuilder &b, WeightFormat format) const;
  /// Blocks of activations in a row.
  Value activationBlocks(ProductBuilder &b) const;
  /// Adds bias and residual, one addition each, to a tile of rows.size() rows,
  /// row by row in vectors of `lanes`, and stores it at the outputs from
  /// `output` on.
  void store(ProductBuilder &b, Value output, llvm::ArrayRef<Value> rows,
             Values tile, int64_t lanes) const;

  Value q, d, sums, weights, bias, residual, out, m, k, ld, panelBegin,
      panelEnd;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_LINEARARGUMENTS_H
