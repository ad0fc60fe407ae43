//===- Products.h - Generated matrix products -------------------*- C++ -*-===//
//
// The emitter of every kernel of the table whose provider is MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_PRODUCTS_PRODUCTS_H
#define QWEN_CODEGEN_PRODUCTS_PRODUCTS_H

#include "qwen/CodeGen/Schedule/Schedule.h"

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace qwen {

/// Adds to `module` a func.func named kernel.name with the C signature of
/// kernel.op in KernelABI.h: pointers are !llvm.ptr, sizes i64, `scale` f32.
/// `kernel.provider` must be MLIR. The module's context must have the dialects
/// of registerCodeGenDialects (Backend.h). Throws Error if the kernel cannot
/// have the schedule (checkSchedule).
void emitProduct(const KernelInfo &kernel, const KernelSchedule &schedule,
                 mlir::ModuleOp module);

} // namespace qwen

#endif // QWEN_CODEGEN_PRODUCTS_PRODUCTS_H
