//===- Lower.h - Planned IR to calls of kernels -----------------*- C++ -*-===//
//
// The last pass over qwen ops: `forward` becomes a func.func with the C
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

/// Module attribute set by the lowering: names of the ops of `forward` by their
/// plan's id, an array of strings (the manifest's "ops").
inline constexpr char kOpsAttr[] = "qwen.ops";
/// Module attribute set by the lowering: the work of these ops, an array of
/// dictionaries (the manifest's "work").
inline constexpr char kWorkAttr[] = "qwen.work";
/// Module attribute set by the lowering: the kernels that each of these ops
/// was given by qwen-select-kernels, an array of arrays of names: of a product
/// those of one token and of many.
inline constexpr char kOpKernelsAttr[] = "qwen.op_kernels";
/// Module attribute set by the lowering: where the inverse frequencies of the
/// rotary embedding lie in the weight image, i64.
inline constexpr char kFrequenciesAttr[] = "qwen.frequencies";
/// Module attribute set by the lowering: floats from one row of logits to the
/// next, i64.
inline constexpr char kResultStrideAttr[] = "qwen.result_stride";

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "qwen/CodeGen/Lower/Passes.h.inc"

/// The kernels (names of the kernel table) that a module of stage "calls"
/// declares, in the table's order.
std::vector<std::string> calledKernels(mlir::ModuleOp module);

} // namespace qwen

#endif // QWEN_CODEGEN_LOWER_LOWER_H
