//===- ArtifactWriter.h - Writes a compiled model ---------------*- C++ -*-===//
//
// Writes the file of docs/artifact.md from modules of stage "calls".
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_ARTIFACT_ARTIFACTWRITER_H
#define QWEN_CODEGEN_ARTIFACT_ARTIFACTWRITER_H

#include "qwen/CodeGen/Artifact/ArtifactInput.h"
#include "qwen/CodeGen/Artifact/PackImage.h"
#include "qwen/CodeGen/Artifact/TargetCode.h"
#include "qwen/Support/WritableFile.h"

#include <functional>
#include <string>
#include <vector>

namespace qwen {

/// Facts of a written file, for the closing summary.
struct ArtifactSummary {
  uint64_t fileBytes = 0;
  uint64_t codeBytes = 0;
  uint64_t weightBytes = 0;
  std::vector<Conversion> conversions;
};

/// Checks a complete artifact before it gets its final name. Throws Error to
/// reject it.
using CheckFn = std::function<void(const std::string &file)>;

/// Writes the artifact to `output`, which gets its final name after `check`.
/// `targets` must have passed orderTargets and checkShared. The same input
/// gives the same bytes. Throws Error; the message about a full disk has the
/// needed size.
ArtifactSummary writeArtifact(WritableFile &output,
                              llvm::ArrayRef<TargetCode> targets,
                              const ArtifactInput &input,
                              const ProgressFn &progress, const CheckFn &check);

/// The bytes of that file. Generates its code, but packs no weight.
uint64_t artifactBytes(llvm::ArrayRef<TargetCode> targets,
                       const ArtifactInput &input);

/// Programs, which run over any images with the parts of their module.
struct ProgramCode {
  /// An ELF with an entry "<program>.<target>" for each program.
  std::vector<char> elf;
  /// The keys "targets", "kv", "images" and "programs" of a manifest.
  std::string manifest;
};

/// The programs of one target, without weights. Throws Error.
ProgramCode emitPrograms(const TargetCode &code);

/// Packs the weights of `module` (stage "packed" or "calls") that are in
/// `image`, the symbol of a qwen.image or null for the model's, from `sources`,
/// and commits the file, which has this image alone. The code of the module
/// runs over the image of any sources of the same shapes. Throws Error like
/// packWeights.
void packImage(mlir::ModuleOp module, const WeightSources &sources,
               WritableFile &file, mlir::FlatSymbolRefAttr image = {});

/// An artifact without weights, for `qwen-run verify`. It has the kernels of
/// `code`, with models (InstructionModels.h) of the instructions that a machine
/// with `features` lacks.
std::vector<char> modelledArtifact(const TargetCode &code,
                                   const ArtifactInput &input,
                                   CpuFeatureSet features);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_ARTIFACTWRITER_H
