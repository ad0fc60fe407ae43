//===- Inspect.h - What a checkpoint would become ---------------*- C++ -*-===//

#ifndef QWEN_COMPILER_INSPECT_H
#define QWEN_COMPILER_INSPECT_H

#include "qwen/ABI/GenerationConfig.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Checkpoint/ModelConfig.h"
#include "qwen/Import/Tokenizer/TokenizerBlob.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

/// The tensors of a checkpoint that have one form.
struct StoredForm {
  /// WeightSource::form().
  std::string form;
  int64_t tensors = 0;
  uint64_t bytes = 0;
};

/// The weight image of a model whose matrices all have one format, or the
/// formats of a plan, not rotated.
struct FormatSize {
  /// A value of --weights.
  std::string_view name;
  uint64_t bytes;
  /// Bytes that a decoded token reads: all but an embedding that is not the
  /// head.
  uint64_t tokenBytes;
};

/// A checkpoint before it is compiled.
struct CheckpointFacts {
  std::string name;
  ModelConfig model;
  GenerationConfig generation;
  /// Numbers of all weights; the numbers of a tied embedding count once.
  int64_t parameters;
  std::vector<StoredForm> forms;
  std::optional<TokenizerImport> tokenizer;
  int64_t context;
  /// The model as it is compiled with the options. The bytes of file and code
  /// are not known, nor the conversions.
  CompileSummary compiled;
  uint64_t tokenBytes;
  /// All plans and formats, in the order of WeightPlans.def and
  /// WeightFormats.def.
  std::vector<FormatSize> formats;
};

/// Reads `checkpoint` and runs the passes, but packs no weight and makes no
/// code. Throws Error like compileModel.
CheckpointFacts inspectCheckpoint(const std::filesystem::path &checkpoint,
                                  const CompileOptions &options = {},
                                  const CompileHooks &hooks = {});

} // namespace qwen

#endif // QWEN_COMPILER_INSPECT_H
