//===- Import.h - From a checkpoint to the graph ----------------*- C++ -*-===//

#ifndef QWEN_IMPORT_MODELS_IMPORT_H
#define QWEN_IMPORT_MODELS_IMPORT_H

#include "qwen/Import/Checkpoint/Config.h"
#include "qwen/Import/Checkpoint/Safetensors.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <string>
#include <vector>

namespace qwen {

/// Maximum numbers of tokens and of rows in one call.
inline constexpr int64_t kDefaultMaxTokens = 512;
inline constexpr int64_t kDefaultMaxRows = 32;

struct ImportedModel {
  /// At stage "graph". `kModelAttr` has the facts of the manifest that come
  /// from the checkpoint: architecture, vocab_size, hidden_size, layers, heads,
  /// kv_heads, head_dim, intermediate_size (i64), rope_theta, rms_norm_eps
  /// (f64), tied (bool), and max_position (i64).
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ModelConfig config;
  GenerationConfig generation;
  /// The files of the module's weights.
  Checkpoint checkpoint;
  /// Sorted names of the checkpoint's tensors that the model does not use.
  std::vector<std::string> unusedTensors;
};

/// Builds `forward(%ids, %positions) -> logits`, with one qwen op for each
/// operation of the model. The location of an op is its path in the Hugging
/// Face model without the leading "model." ("layers.0.self_attn.q_proj").
/// Weights are symbols with the names of their tensors; their bytes stay in the
/// files.
///
/// Loads the required dialects into `context`. Throws Error like the readers of
/// the configuration and the checkpoint. Also throws Error, naming tensor and
/// file, for a tensor that is missing, has a type other than F32, F16 and BF16,
/// or a shape other than that of the configuration.
ImportedModel importCheckpoint(const std::filesystem::path &dir,
                               mlir::MLIRContext &context);

} // namespace qwen

#endif // QWEN_IMPORT_MODELS_IMPORT_H
