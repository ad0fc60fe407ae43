//===- Verify.h - Kernels verified before a file has its name ---*- C++ -*-===//

#ifndef QWEN_OPT_VERIFY_H
#define QWEN_OPT_VERIFY_H

#include "qwen/CodeGen/Artifact/ArtifactWriter.h"

#include <string>
#include <vector>

namespace qwen {

/// Has `qwen-run verify` compare the kernels of the artifact at `file` with the
/// reference: the program that the command line `runner` names, or else the
/// qwen-run beside this program, with models of instructions that this machine
/// lacks (InstructionModels.h). `file` was written from the other arguments.
///
/// Returns lines of the closing summary: how many kernels of each target were
/// verified and how ("native", "emulated", "instruction modelled"), or "not
/// verified" and why. Throws Error with qwen-run's message where a kernel is
/// wrong, and where `runner` does not verify.
std::vector<std::string> verifyArtifact(const std::string &file,
                                        const std::string &runner,
                                        llvm::ArrayRef<TargetCode> targets,
                                        const ArtifactInput &input);

} // namespace qwen

#endif // QWEN_OPT_VERIFY_H
