//===- Import.h - From a checkpoint to the graph ----------------*- C++ -*-===//

#ifndef QWEN_IMPORT_MODELS_IMPORT_H
#define QWEN_IMPORT_MODELS_IMPORT_H

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace qwen {

/// Maximum numbers of tokens and of rows in one call.
inline constexpr int64_t kDefaultMaxTokens = 512;
inline constexpr int64_t kDefaultMaxRows = 64;

struct ImportedModel {
  /// At stage "graph". `kModelAttr` has the facts of the manifest that come
  /// from the checkpoint: architecture, vocab_size, hidden_size, layers, heads,
  /// kv_heads, head_dim, intermediate_size (i64), rope_theta, rms_norm_eps
  /// (f64), tied (bool), and max_position (i64).
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<Checkpoint> checkpoint;
  /// Names of the checkpoint's tensors that the model does not use.
  std::vector<std::string> unusedTensors;
};

/// Builds `forward(%ids, %positions) -> logits`, with one qwen op for each
/// operation of the model. The location of an op is its path in the Hugging
/// Face model without the leading "model." ("layers.0.self_attn.q_proj").
/// Weights are symbols with the names of their tensors in that model; their
/// bytes stay in the files.
///
/// Loads the required dialects into `context`. Throws Error like
/// openCheckpoint. Also throws Error, naming tensor and file, for a tensor that
/// is missing, has a type that is not supported, or a shape other than that of
/// the configuration.
ImportedModel importCheckpoint(const std::filesystem::path &path,
                               mlir::MLIRContext &context);

} // namespace qwen

#endif // QWEN_IMPORT_MODELS_IMPORT_H
