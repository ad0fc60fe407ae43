//===- Summary.h - The facts of a compiled model ----------------*- C++ -*-===//

#ifndef QWEN_LIB_COMPILER_SUMMARY_H
#define QWEN_LIB_COMPILER_SUMMARY_H

#include "qwen/Compiler/Compiler.h"
#include "qwen/Compiler/Inspect.h"
#include "qwen/Import/Models/Import.h"

namespace qwen {

/// The facts of a file that was `written` from the other arguments, which are
/// at stage "calls".
CompileSummary summarize(const ImportedModel &model,
                         llvm::ArrayRef<TargetCode> codes,
                         const ArtifactSummary &written);

/// Numbers of all weights of the checkpoint.
int64_t parametersOf(const ImportedModel &model);

/// The image of a module at stage "packed" or later.
FormatSize imageSize(mlir::ModuleOp module, std::string_view name,
                     const ModelConfig &model);

} // namespace qwen

#endif // QWEN_LIB_COMPILER_SUMMARY_H
