//===- KernelCode.h - Code of one kernel ------------------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_BACKEND_KERNELCODE_H
#define QWEN_CODEGEN_BACKEND_KERNELCODE_H

#include "qwen/CodeGen/Backend/Target.h"

#include <memory>
#include <string_view>

namespace llvm {
class LLVMContext;
class Module;
} // namespace llvm

namespace qwen {

struct KernelInfo;

/// The optimized code of `kernel` for `target`, with the instructions of the
/// kernel's features alone. The module exports one function,
/// nameForTarget(kernel.name, target). changedSchedule takes `changes`, for
/// kernels of MLIR. Several threads may call it at the same time. Throws Error.
std::unique_ptr<llvm::Module> generateKernel(const KernelInfo &kernel,
                                             const Target &target,
                                             llvm::LLVMContext &context,
                                             std::string_view changes = "");

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_KERNELCODE_H
