//===- CppBitcode.h - C++ as bitcode ----------------------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_CPP_CPPBITCODE_H
#define QWEN_CODEGEN_CPP_CPPBITCODE_H

#include "qwen/ABI/CpuFeatures.h"

#include <string_view>

namespace qwen {

/// LLVM bitcode of lib/CodeGen/Cpp/CppKernels.cpp for `arch`, not optimized. It
/// has a function qwenCpp<Op> for each kind with provider Cpp, and declares the
/// constant qwenLanes.
std::string_view cppBitcode(Arch arch);

/// Optimized LLVM bitcode of lib/CodeGen/Cpp/AmxModel.cpp for x86-64.
std::string_view amxModelBitcode();

} // namespace qwen

#endif // QWEN_CODEGEN_CPP_CPPBITCODE_H
