//===- ArtifactManifest.h - The manifest of a compiled model ----*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTMANIFEST_H
#define QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTMANIFEST_H

#include "qwen/CodeGen/Artifact/ArtifactInput.h"
#include "qwen/CodeGen/Artifact/TargetCode.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>

namespace qwen {

/// The manifest, JSON in UTF-8 (docs/artifact.md). `targets` must have passed
/// orderTargets and checkShared.
std::string writeManifest(llvm::ArrayRef<TargetCode> targets,
                          const ArtifactInput &input);

/// The manifest of modelledArtifact: without tensors, for code that uses
/// `features`.
std::string writeKernelManifest(const TargetCode &code,
                                const ArtifactInput &input,
                                CpuFeatureSet features);

/// The part of the manifest that is about code.
std::string writeCodeManifest(const TargetCode &code);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTMANIFEST_H
