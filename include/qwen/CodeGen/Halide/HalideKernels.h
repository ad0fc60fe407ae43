//===- HalideKernels.h - Kernels made by Halide -----------------*- C++ -*-===//
//
// The kernels of Kernels.def with provider Halide, as LLVM bitcode. Halide has
// its own LLVM, so this interface only passes bitcode. It includes neither
// Halide nor LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_HALIDE_HALIDEKERNELS_H
#define QWEN_CODEGEN_HALIDE_HALIDEKERNELS_H

#include "qwen/ABI/KernelTable.h"

#include <string>

namespace qwen {

/// Bitcode of a module that defines halideFunctionName(kernel) with Halide's
/// calling convention (HalideAdapter.cpp adds the C signature of KernelABI.h).
/// The bytes depend only on the kernel. `kernel.provider` must be Halide.
/// Throws Error if Halide rejects the kernel.
std::string halideBitcode(const KernelInfo &kernel);

/// The kernel's name, then "_halide".
std::string halideFunctionName(const KernelInfo &kernel);

} // namespace qwen

#endif // QWEN_CODEGEN_HALIDE_HALIDEKERNELS_H
