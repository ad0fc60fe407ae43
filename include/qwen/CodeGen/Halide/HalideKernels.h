//===- HalideKernels.h - Kernels around the products ------------*- C++ -*-===//
//
// The kernels of Kernels.def that Halide makes, as LLVM bitcode. Halide has its
// own LLVM, so this interface passes bitcode only; it includes neither Halide
// nor LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_HALIDE_HALIDEKERNELS_H
#define QWEN_CODEGEN_HALIDE_HALIDEKERNELS_H

#include "qwen/ABI/KernelTable.h"

#include <string>

namespace qwen {

/// Bitcode of a module that defines halideFunctionName(kernel) in Halide's own
/// calling convention (HalideAdapter.cpp gives it the C signature of
/// KernelABI.h). The same bytes each time for one kernel, whatever was compiled
/// before it. Throws Error where Halide refuses the kernel; `kernel.provider`
/// must be Halide.
std::string halideBitcode(const KernelInfo &kernel);

/// The kernel's name with "_halide" behind it.
std::string halideFunctionName(const KernelInfo &kernel);

} // namespace qwen

#endif // QWEN_CODEGEN_HALIDE_HALIDEKERNELS_H
