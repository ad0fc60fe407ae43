//===- TargetCode.h - The targets of one file -------------------*- C++ -*-===//
//
// One artifact may have code for several targets over one weight image. The
// functions here decide whether targets can share a file, and which of them is
// the best for a machine (docs/artifact.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_ARTIFACT_TARGETCODE_H
#define QWEN_CODEGEN_ARTIFACT_TARGETCODE_H

#include "qwen/CodeGen/Backend/Target.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace qwen {

/// A target and its module of stage "calls".
struct TargetCode {
  Target target;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// The features of the kernels that `module` (stage "calls") calls. Its code
/// may use them, and a machine must have them.
CpuFeatureSet usedFeatures(mlir::ModuleOp module, Arch arch);

/// Sorts the targets, best first. To compare two targets, it sorts the
/// instruction sets of their kernels, newest first, in the order of KernelIsa;
/// at the first difference the newer one is better. Targets with the same
/// instruction sets run equally well on the same machines, so only the first of
/// them stays. Returns a warning for each removed target.
std::vector<std::string> orderTargets(std::vector<TargetCode> &targets);

/// Throws Error unless all modules have the same weight image, limits, arena,
/// ops and result, so that they can share one manifest and one image. The error
/// names two targets and the difference.
void checkShared(llvm::ArrayRef<TargetCode> targets);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_TARGETCODE_H
