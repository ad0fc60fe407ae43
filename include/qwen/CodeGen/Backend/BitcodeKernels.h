//===- BitcodeKernels.h - Kernels that the build compiled -------*- C++ -*-===//

#ifndef QWEN_CODEGEN_BACKEND_BITCODEKERNELS_H
#define QWEN_CODEGEN_BACKEND_BITCODEKERNELS_H

#include "qwen/ABI/KernelTable.h"

#include <memory>

namespace llvm {
class LLVMContext;
class Module;
} // namespace llvm

namespace qwen {

/// A module with one external definition, `kernel.name`, which has the
/// signature of `kernel.op` in KernelABI.h. A kernel of Halide calls Halide's
/// function, which is internal and alwaysinline. All other declarations are
/// intrinsics. The functions have no target attributes; the caller sets these
/// and the data layout. `kernel.provider` must be Halide or Cpp. Throws Error.
std::unique_ptr<llvm::Module> emitBitcodeKernel(const KernelInfo &kernel,
                                                llvm::LLVMContext &context);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_BITCODEKERNELS_H
