//===- Verify.h - Verification of the kernels of a new file -----*- C++ -*-===//

#ifndef QWEN_OPT_VERIFY_H
#define QWEN_OPT_VERIFY_H

#include "qwen/CodeGen/Artifact/ArtifactWriter.h"

#include <string>
#include <vector>

namespace qwen {

/// Runs `qwen-run verify` to compare the kernels of the artifact at `file` with
/// the reference. The program is the command line `runner` or, by default, the
/// qwen-run in the folder of this program, with models of instructions that
/// this machine lacks (InstructionModels.h). `file` was written from the other
/// arguments.
///
/// Returns lines of the closing summary: the number of verified kernels of each
/// target and the method ("native", "emulated", "instruction modelled"), or
/// "not verified" and the reason. Throws Error with qwen-run's message if a
/// kernel is wrong, and an Error if `runner` does not verify the kernels.
std::vector<std::string> verifyArtifact(const std::string &file,
                                        const std::string &runner,
                                        llvm::ArrayRef<TargetCode> targets,
                                        const ArtifactInput &input);

} // namespace qwen

#endif // QWEN_OPT_VERIFY_H
