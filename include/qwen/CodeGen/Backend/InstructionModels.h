//===- InstructionModels.h - Instructions in plain IR -----------*- C++ -*-===//
//
// Models test a kernel without a machine or an emulator that has its
// instructions. Plain IR with the same meaning replaces these instructions in
// the final IR, and LLVM splits wide vectors into narrow ones. The rest is the
// kernel's real code.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_BACKEND_INSTRUCTIONMODELS_H
#define QWEN_CODEGEN_BACKEND_INSTRUCTIONMODELS_H

#include "qwen/ABI/CpuFeatures.h"

namespace llvm {
class Module;
} // namespace llvm

namespace qwen {

/// Rewrites `module` (x86-64, from optimize) for a machine that has only
/// `features`. A function that needs no other features stays unchanged. Throws
/// Error, with function and intrinsic, if an intrinsic has no model.
void modelInstructions(llvm::Module &module, CpuFeatureSet features);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_INSTRUCTIONMODELS_H
