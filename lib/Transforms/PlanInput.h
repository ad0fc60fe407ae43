//===- PlanInput.h - What a plan is made for --------------------*- C++ -*-===//
//
// Facts that qwen-plan and qwen-verify-plan share: the limits of a call, and
// the writer of a value. Each pass has its own rules for barriers and buffers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_TRANSFORMS_PLANINPUT_H
#define QWEN_LIB_TRANSFORMS_PLANINPUT_H

#include "qwen/Dialect/QwenDialect.h"

namespace qwen {

/// The program to plan, and the most tokens and wanted tokens of one call.
struct PlanInput {
  mlir::func::FuncOp program;
  int64_t maxTokens;
  int64_t maxRows;
};

/// Reads the limits of `program`. Emits an error if one is missing, or if there
/// are more wanted tokens than tokens.
mlir::FailureOr<PlanInput> readPlanInput(mlir::func::FuncOp program);

/// What `value` is a view of, or `value` itself.
mlir::Value rootOf(mlir::Value value);

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
