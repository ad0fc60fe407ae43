//===- TargetCode.h - The targets of one file -------------------*- C++ -*-===//
//
// One artifact may have code for several targets over one weight image. What
// follows from the targets' rows is here: whether they can share a file, and
// which of them is the best that a machine can run (docs/artifact.md).
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

/// A target and the module of stage "calls" that was made for it.
struct TargetCode {
  Target target;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// The features of the kernels that `module` (stage "calls") calls: what its
/// code may use and a machine must have.
CpuFeatureSet usedFeatures(mlir::ModuleOp module, Arch arch);

/// Puts the best target first: the one whose rows have the newest instruction
/// set, in the order of KernelIsa; of those with the same newest one, the one
/// with the newer next one, and so on. Targets whose rows have the same
/// instruction sets run on the same machines, and which of them is better
/// cannot be told there: the one that was named first keeps its code and the
/// others are removed. Returns a warning for each of these.
std::vector<std::string> orderTargets(std::vector<TargetCode> &targets);

/// Throws Error, naming two targets and what differs, unless all modules have
/// the same weight image, limits, arena, ops and output, so that one manifest
/// and one image serve all of them.
void checkShared(llvm::ArrayRef<TargetCode> targets);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_TARGETCODE_H
