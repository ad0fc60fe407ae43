//===- PlanInput.h - What a plan is made for --------------------*- C++ -*-===//
//
// Facts that qwen-plan and qwen-verify-plan share: how many tokens a value has,
// and its writer. Each pass has its own rules for barriers and buffers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_TRANSFORMS_PLANINPUT_H
#define QWEN_LIB_TRANSFORMS_PLANINPUT_H

#include "qwen/Dialect/QwenDialect.h"

namespace qwen {

/// Checks that `program` has a limit for what each value counts, and that views
/// have no more tokens than there are. Emits an error if not.
mlir::LogicalResult checkLimits(mlir::func::FuncOp program);

/// The most tokens of `value`, or choices of experts, in a call of its program,
/// which has limits. Integers that all tokens share count as one token.
int64_t mostTokens(mlir::Value value);

/// The op that writes `value`, which may be a view. Null for an argument of the
/// function.
inline mlir::Operation *writerOf(mlir::Value value) {
  return rootOf(value).getDefiningOp();
}

/// The first op that may write the result of `op`: of a SwiGLU, the product
/// before it, with which a driver may compute it.
inline mlir::Operation *firstWriter(mlir::Operation *op) {
  if (auto gate = mlir::dyn_cast<SwiGluOp>(op))
    if (LinearOp product = gatedProduct(gate))
      return product;
  return op;
}

/// The arguments of `program` that are activations.
llvm::SmallVector<mlir::BlockArgument>
activationArguments(mlir::func::FuncOp program);

/// The place in the arena of `argument`, which another program leaves there:
/// the buffer of that program's result with the name of the argument. Null if
/// the caller gives the argument. Emits an error if there is no such result, or
/// if its activations have another type.
mlir::FailureOr<BufferAttr> placeInOther(mlir::BlockArgument argument);

} // namespace qwen

#endif // QWEN_LIB_TRANSFORMS_PLANINPUT_H
