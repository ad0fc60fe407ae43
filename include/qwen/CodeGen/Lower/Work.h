//===- Work.h - Bytes and multiplications of ops ----------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_LOWER_WORK_H
#define QWEN_CODEGEN_LOWER_WORK_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/OpWork.h"

#include "mlir/IR/BuiltinOps.h"

namespace qwen {

/// The work of an op of stage "packed" in `module`, with a cache of format
/// `kv`. Weights that are not packed count as zero bytes.
OpWork workOf(mlir::Operation *op, mlir::ModuleOp module, KvFormat kv);

} // namespace qwen

#endif // QWEN_CODEGEN_LOWER_WORK_H
