//===- HalideAdapter.h - Halide kernels behind C signatures -----*- C++ -*-===//

#ifndef QWEN_CODEGEN_BACKEND_HALIDEADAPTER_H
#define QWEN_CODEGEN_BACKEND_HALIDEADAPTER_H

#include "qwen/ABI/KernelTable.h"

#include <memory>

namespace llvm {
class LLVMContext;
class Module;
} // namespace llvm

namespace qwen {

/// A module with one external definition, `kernel.name`, with the signature
/// that KernelABI.h gives to `kernel.op`. It calls Halide's function, which is
/// internal and alwaysinline; what the module declares besides are intrinsics
/// only. The functions carry no target attributes; the caller sets them, and
/// the data layout, for the target. `kernel.provider` must be Halide. Throws
/// Error.
std::unique_ptr<llvm::Module> emitHalideKernel(const KernelInfo &kernel,
                                               llvm::LLVMContext &context);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_HALIDEADAPTER_H
