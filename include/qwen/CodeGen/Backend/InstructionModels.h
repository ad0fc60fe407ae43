//===- InstructionModels.h - Instructions in plain IR -----------*- C++ -*-===//
//
// How a row of the kernel table is tried where neither this machine nor an
// emulator has its instructions: they are replaced, in the final IR, by plain
// IR of the same meaning, and LLVM makes wide vectors of narrow ones. All else
// is the row's real code.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_BACKEND_INSTRUCTIONMODELS_H
#define QWEN_CODEGEN_BACKEND_INSTRUCTIONMODELS_H

#include "qwen/ABI/CpuFeatures.h"

namespace llvm {
class Module;
} // namespace llvm

namespace qwen {

/// Makes `module` (x86-64, from optimize) code for a machine with `features`
/// only. Functions whose features it has stay as they are. Throws Error, naming
/// function and intrinsic, for one that has no model.
void modelInstructions(llvm::Module &module, CpuFeatureSet features);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_INSTRUCTIONMODELS_H
