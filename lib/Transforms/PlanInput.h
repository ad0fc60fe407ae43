//===- PlanInput.h - What a plan is made for --------------------*- C++ -*-===//
//
// Facts that qwen-plan and qwen-verify-plan share: the limits of a call, and
// how threads divide ops. The rules for barriers and buffers are not here: the
// verifier has its own.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_TRANSFORMS_PLANINPUT_H
#define QWEN_LIB_TRANSFORMS_PLANINPUT_H

#include "qwen/Dialect/QwenDialect.h"

namespace qwen {

/// The function to plan, and the most tokens and output rows of one call.
struct PlanInput {
  mlir::func::FuncOp forward;
  int64_t maxTokens;
  int64_t maxRows;
};

/// Reads the input from the module. Emits an error where the function or a
/// limit is missing or a limit is out of range.
mlir::FailureOr<PlanInput> readPlanInput(mlir::ModuleOp module);

/// Name of the attribute of an op that holds its PlanAttr.
inline constexpr char kPlanName[] = "plan";

/// Whether `op` computes, so that it needs a plan. False for null.
bool isPlanned(mlir::Operation *op);

/// Whether the units of `op` are rows and each thread does exactly its share.
/// Then a thread does the same rows of any two such ops with equally many rows.
/// Other ops have other units, or let threads take units from each other.
bool isDividedByTokens(mlir::Operation *op);

/// The op that writes `value`, which may be a view. Null where the rows are an
/// argument of the function.
mlir::Operation *writerOf(mlir::Value value);

/// The columns of a value of rows.
int64_t widthOf(mlir::Value rows);

} // namespace qwen

#endif // QWEN_LIB_TRANSFORMS_PLANINPUT_H
