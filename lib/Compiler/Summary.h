//===- Summary.h - The facts of a compiled model ----------------*- C++ -*-===//

#ifndef QWEN_LIB_COMPILER_SUMMARY_H
#define QWEN_LIB_COMPILER_SUMMARY_H

#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"

namespace qwen {

/// The facts of a file that was `written` from the other arguments, which are
/// at stage "calls".
CompileSummary summarize(const ImportedModel &model,
                         llvm::ArrayRef<TargetCode> codes,
                         const ArtifactSummary &written);

} // namespace qwen

#endif // QWEN_LIB_COMPILER_SUMMARY_H
