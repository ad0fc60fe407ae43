//===- Backend.h - MLIR to machine code -------------------------*- C++ -*-===//
//
// From the dialects func, scf, cf, arith, math, vector, llvm and arm_neon to
// object files. In order:
//
//   module = translateToLLVM(mlirModule, context);   for each part; Halide's
//   setTarget(module, target, features);             parts come as bitcode
//   linkModule(part, std::move(module));
//   linkDriver(part, target, features);
//   nameForTarget(part, target);                     for each target
//   linkModule(whole, std::move(part));
//   addEntryTable(whole, functions);                 Link.h
//   optimize(whole, target);
//   objects = emitObjects(whole, target);
//
// Float semantics stay those of the source at every step: no contraction, no
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

/// Renames every function that `module` defines and exports to its name for
/// `target`, so that one file can have code for several targets.
void nameForTarget(llvm::Module &module, const Target &target);

/// Moves the functions of `from` into `into`. Both must have passed setTarget.
/// Throws Error if both define a symbol.
void linkModule(llvm::Module &into, std::unique_ptr<llvm::Module> from);

/// Links the driver (Driver.h) into `into`, whose functions call it, as code
/// for `target` that uses `features`. The driver's functions become local.
void linkDriver(llvm::Module &into, const Target &target,
                CpuFeatureSet features);

/// Makes all symbols except the entry table internal, removes unreachable
/// functions, and runs LLVM's O2 pipeline without vectorizers. Checks the
/// result with verifyGenerated.
void optimize(llvm::Module &module, const Target &target);

/// Throws Error, with the function, if IR could compute another result than
/// docs/numerics.md defines, or would not link: fmuladd, fast-math flags
/// (reassociating reductions included), a function without a body.
void verifyGenerated(const llvm::Module &module);

/// Number of parts into which a module is split, and of threads that emit them.
/// It changes the bytes of the result, so it is the same on every machine.
inline constexpr unsigned kEmitThreads = 4;

/// Object files (ELF) of the parts of `module`, which threads emit side by
/// side. Throws Error, with the symbol, if the code needs a symbol that it does
/// not define.
std::vector<std::vector<char>> emitObjects(const llvm::Module &module,
                                           const Target &target);

/// The code as text, for --emit=asm and --emit=llvm.
std::string emitAssembly(const llvm::Module &module, const Target &target);
std::string printIR(const llvm::Module &module);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_BACKEND_H
