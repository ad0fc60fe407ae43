//===- ArtifactWriter.h - Writes a compiled model ---------------*- C++ -*-===//
//
// From a module of stage "calls" to the file of docs/artifact.md.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_ARTIFACTWRITER_H
#define QWEN_CODEGEN_ARTIFACTWRITER_H

#include "qwen/ABI/Blocks.h"
#include "qwen/CodeGen/Pack.h"
#include "qwen/CodeGen/Target.h"
#include "qwen/Import/Config.h"
#include "qwen/Import/Tokenizer.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace qwen {

/// What wrote an artifact, in its manifest.
inline constexpr char kCompilerName[] = "qwen-opt 0.1";

/// What the artifact holds besides the module.
struct ArtifactInput {
  /// Name of the model: the name of the checkpoint's folder.
  std::string name;
  /// Positions that a sequence can have.
  int64_t context;
  const ModelConfig *config;
  const GenerationConfig *generation;
  const Checkpoint *checkpoint;
  const std::optional<TokenizerImport> *tokenizer;
};

/// Bytes that one token takes in the KV cache.
int64_t kvTokenBytes(const ModelConfig &config, KvFormat format);

/// The code of `module` (stage "calls") and of the kernels that it calls, for
/// `target`, optimized, with the entry table.
std::unique_ptr<llvm::Module> generateCode(mlir::ModuleOp module,
                                           const Target &target,
                                           llvm::LLVMContext &context);

/// What was written, for the closing summary.
struct ArtifactSummary {
  uint64_t fileBytes = 0;
  uint64_t codeBytes = 0;
  uint64_t weightBytes = 0;
};

/// Writes the artifact to a temporary file beside `path` and renames it to
/// `path` once it is whole. The temporary file is removed on errors and on
/// SIGINT, SIGTERM and SIGHUP. The same input gives the same bytes. Throws
/// Error, for a full disk with the bytes that are needed.
ArtifactSummary writeArtifact(const std::filesystem::path &path,
                              mlir::ModuleOp module, const Target &target,
                              const ArtifactInput &input,
                              const ProgressFn &progress);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACTWRITER_H
