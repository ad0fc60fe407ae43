//===- Lower.h - Planned IR to calls of kernels -----------------*- C++ -*-===//
//
// The last pass over qwen ops: each program becomes a func.func with the C
// signature of ForwardFn (ABI/KernelABI.h), which waits at barriers and, for
// each op, calls a kernel on the calling thread's share of the op's units.
// Passes.td describes the pass in full.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_LOWER_LOWER_H
#define QWEN_CODEGEN_LOWER_LOWER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <string>
#include <vector>

namespace qwen {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "qwen/CodeGen/Lower/Passes.h.inc"

/// The kernels (names of the kernel table) that a module of stage "calls"
/// declares, in the table's order.
std::vector<std::string> calledKernels(mlir::ModuleOp module);

/// Replaces the qwen.struct ops of a module by constants and by memory on the
/// stack, which the conversion to LLVM knows.
void expandStructs(mlir::ModuleOp module);

} // namespace qwen

#endif // QWEN_CODEGEN_LOWER_LOWER_H
