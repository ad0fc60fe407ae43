//===- Work.h - Bytes and multiplications of ops ----------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_LOWER_WORK_H
#define QWEN_CODEGEN_LOWER_WORK_H

#include "qwen/Dialect/QwenDialect.h"

namespace qwen {

/// The work of an op of stage "packed" in `module`, with a cache of format
/// `kv`.
OpWork workOf(ForwardOp op, mlir::ModuleOp module);

} // namespace qwen

#endif // QWEN_CODEGEN_LOWER_WORK_H
