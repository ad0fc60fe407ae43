//===- HalideBitcode.h - Kernels around the products as bitcode -*- C++ -*-===//
//
// The kernels of Kernels.def that Halide makes, as LLVM bitcode. Halide ran
// when the compiler was built.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_HALIDE_HALIDEBITCODE_H
#define QWEN_CODEGEN_HALIDE_HALIDEBITCODE_H

#include "qwen/ABI/KernelTable.h"

#include <string_view>

namespace qwen {

/// Bitcode of a module that defines a function named `kernel.name` in Halide's
/// calling convention. Throws Error where Halide does not provide the kernel.
std::string_view halideBitcode(const KernelInfo &kernel);

/// Bitcode of lib/CodeGen/Halide/Shims.cpp for `arch`, not optimized.
std::string_view halideShims(Arch arch);

} // namespace qwen

#endif // QWEN_CODEGEN_HALIDE_HALIDEBITCODE_H
