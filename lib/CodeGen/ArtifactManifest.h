//===- ArtifactManifest.h - The manifest of a compiled model ----*- C++ -*-===//

#ifndef QWEN_CODEGEN_ARTIFACTMANIFEST_H
#define QWEN_CODEGEN_ARTIFACTMANIFEST_H

#include "qwen/CodeGen/ArtifactWriter.h"

#include <string>

namespace qwen {

/// The features of the kernels that `module` (stage "calls") calls: what its
/// code may use and a machine must have.
CpuFeatureSet usedFeatures(mlir::ModuleOp module, Arch arch);

/// The manifest, JSON in UTF-8 (docs/artifact.md).
std::string writeManifest(mlir::ModuleOp module, const Target &target,
                          const ArtifactInput &input);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACTMANIFEST_H
