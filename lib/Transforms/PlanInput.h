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

/// The most rows of `value` in a call of its program, which has limits: tokens,
/// or choices. Integers that all tokens share are one row.
int64_t mostRows(mlir::Value value);

/// The op that writes `value`, which may be a view. Null for an argument of the
/// function.
inline mlir::Operation *writerOf(mlir::Value value) {
  return rootOf(value).getDefiningOp();
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
