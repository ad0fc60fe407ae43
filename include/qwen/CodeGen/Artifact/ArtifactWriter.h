//===- ArtifactWriter.h - Writes a compiled model ---------------*- C++ -*-===//
//
// From modules of stage "calls" to the file of docs/artifact.md.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_ARTIFACT_ARTIFACTWRITER_H
#define QWEN_CODEGEN_ARTIFACT_ARTIFACTWRITER_H

#include "qwen/ABI/TemporaryFile.h"
#include "qwen/CodeGen/Artifact/ArtifactInput.h"
#include "qwen/CodeGen/Artifact/Pack.h"
#include "qwen/CodeGen/Artifact/TargetCode.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace qwen {

/// The code of the modules of `targets` and of the kernels that they call, each
/// for its target, optimized, with the entry table. At least one target; all of
/// one architecture.
std::unique_ptr<llvm::Module> generateCode(llvm::ArrayRef<TargetCode> targets,
                                           llvm::LLVMContext &context);

/// What was written, for the closing summary.
struct ArtifactSummary {
  uint64_t fileBytes = 0;
  uint64_t codeBytes = 0;
  uint64_t weightBytes = 0;
};

/// Checks a complete artifact before it gets its final name. Throws Error to
/// reject it.
using CheckFn = std::function<void(const std::string &file)>;

/// Writes the artifact to `output`, which gets its final name after `check`.
/// `targets` have passed orderTargets and checkShared. The same input gives the
/// same bytes. Throws Error; for a full disk it gives the required size.
ArtifactSummary writeArtifact(TemporaryFile &output,
                              llvm::ArrayRef<TargetCode> targets,
                              const ArtifactInput &input,
                              const ProgressFn &progress, const CheckFn &check);

/// An artifact without weights whose kernels a machine with `features` runs:
/// those of `code`, with models of the instructions that it lacks
/// (InstructionModels.h). For `qwen-run verify` only.
std::vector<char> modelledArtifact(const TargetCode &code,
                                   const ArtifactInput &input,
                                   CpuFeatureSet features);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_ARTIFACTWRITER_H
