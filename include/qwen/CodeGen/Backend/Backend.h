//===- Backend.h - MLIR to machine code -------------------------*- C++ -*-===//
//
// From the dialects func, scf, cf, arith, math, vector, llvm and arm_neon to
// object files. The code of a file has parts that call each other: `forward`
// with the driver, and kernels. Threads generate them side by side, each in an
// LLVMContext of its own:
//
//   module = translateToLLVM(mlirModule, context);   or bitcode of the build
//   setTarget(module, target, features);
//   linkDriver(module, target, features);            for `forward`
//   nameForTarget(module, target);
//   optimize(module, target, entry);
//   object = emitObject(module, target);
//
// linkSharedObject (Link.h) links the objects with a table of the entries.
//
// Every step keeps the float semantics of the source: no contraction, no
// fast-math flags, no reassociation (docs/numerics.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_BACKEND_BACKEND_H
#define QWEN_CODEGEN_BACKEND_BACKEND_H

#include "qwen/CodeGen/Backend/Target.h"
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class LLVMContext;
class Module;
} // namespace llvm

namespace mlir {
class DialectRegistry;
class ModuleOp;
} // namespace mlir

namespace qwen {

/// Registers the dialects of generated code and their translations to LLVM IR.
void registerCodeGenDialects(mlir::DialectRegistry &registry);

/// Lowers `module` to the LLVM dialect, in place, and translates it. Throws
/// Error if an op has no lowering.
std::unique_ptr<llvm::Module> translateToLLVM(mlir::ModuleOp module,
                                              llvm::LLVMContext &context);

/// The value of LLVM's function attribute "target-features" for `features`:
/// "+avx2,+fma".
std::string featureAttribute(CpuFeatureSet features);

/// Sets the target of every function of `module`. The functions may use only
/// the instructions of `features`, so that an artifact runs on every machine
/// with the features of its kernels, even if `target` has more. Replaces all
/// attributes and module flags of the producer. Kernels become noinline.
void setTarget(llvm::Module &module, const Target &target,
               CpuFeatureSet features);

/// The name of `function` in code for `target`: "<function>.<target>".
std::string nameForTarget(llvm::StringRef function, const Target &target);

/// Renames every function of `module` that is not local, declarations included,
/// to its name for `target`, so that one file can have code for several
/// targets.
void nameForTarget(llvm::Module &module, const Target &target);

/// Moves the functions of `from` into `into`. Both must have passed setTarget.
/// Throws Error if both define a symbol.
void linkModule(llvm::Module &into, std::unique_ptr<llvm::Module> from);

/// Links the driver (Driver.h) into `into`, whose functions call it, as code
/// for `target` that uses `features`. The driver's functions become local.
void linkDriver(llvm::Module &into, const Target &target,
                CpuFeatureSet features);

/// Makes all functions except `entry` internal, removes unreachable ones, and
/// runs LLVM's O2 pipeline without vectorizers. Checks the result with
/// verifyGenerated.
void optimize(llvm::Module &module, const Target &target,
              llvm::StringRef entry);

/// Throws Error, with the function, if IR could compute another result than
/// docs/numerics.md defines, or cannot be in an artifact: fmuladd, fast-math
/// flags (reassociating reductions included), a variable.
void verifyGenerated(const llvm::Module &module);

/// An object file (ELF) of `module`.
std::vector<char> emitObject(const llvm::Module &module, const Target &target);

/// The code as text, for --emit=asm and --emit=llvm.
std::string emitAssembly(const llvm::Module &module, const Target &target);
std::string printIR(const llvm::Module &module);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_BACKEND_H
