//===- Import.h - From a checkpoint to the graph ----------------*- C++ -*-===//

#ifndef QWEN_IMPORT_MODELS_IMPORT_H
#define QWEN_IMPORT_MODELS_IMPORT_H

#include "qwen/Import/Adapters/Adapters.h"
#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Import/Models/Programs.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

/// Maximum numbers of tokens and of rows in one call.
inline constexpr int64_t kDefaultMaxTokens = 512;
inline constexpr int64_t kDefaultMaxRows = 64;

/// What unused tensors are that --ignore-tensors names.
inline constexpr std::string_view kIgnoredKind = "ignored";

struct ImportOptions {
  /// Regular expressions (RE2) of tensors that the model need not use.
  std::vector<std::string> ignoredTensors = {};
  std::vector<AdapterOption> adapters = {};
  Pruning pruning = {};
  std::optional<RopeScaling> scaling = {};
  /// Whether a draft head of the checkpoint becomes a program.
  bool draftHead = false;
  /// The ids that drafts have (Checkpoint::trimHead); empty: all.
  std::vector<int32_t> draftTokens = {};
};

struct ImportedModel {
  /// At stage "graph". `kModelAttr` of a program has the facts of its model:
  /// "architecture", "max_context", the keys of kShapeFacts, and "experts" and
  /// "yarn" if it has them.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// What the weights of `checkpoint` read besides its own files.
  std::vector<StoredTensors> adapters;
  std::unique_ptr<Checkpoint> checkpoint;
  /// Names of the checkpoint's tensors that the model does not use, by the kind
  /// of Known.h or by kIgnoredKind.
  std::map<std::string, std::vector<std::string>, std::less<>> unusedTensors;
};

/// Builds the `programs` that the checkpoint has, in their order, with one qwen
/// op for each operation of the model; `forward(%ids, %positions) -> logits` is
/// the first. The location of an op is its path in its program's
/// scope ("layers.0.self_attn.q_proj"), behind ModelScope::ops. Weights are
/// symbols with the names of Checkpoint::weights(), and programs that read one
/// weight share it; their values stay in the files.
///
/// Loads the required dialects into `context`. Throws Error like
/// openCheckpoint. Also throws Error, naming tensor and file, for a tensor that
/// is missing, has a type that is not supported, or a shape that contradicts
/// the configuration, and for one that no program uses, unless it is known
/// (Known.h) or an expression of `ignoredTensors` matches its name in the file.
/// Each of these must match such a tensor. The adapters are merged in their
/// order; throws Error like mergeAdapter. Then the layers of `pruning` are
/// removed (Checkpoint::removeLayers), positions are scaled
/// (Checkpoint::scaleRope), and the head of drafts is trimmed.
ImportedModel
importCheckpoint(const std::filesystem::path &path, mlir::MLIRContext &context,
                 llvm::ArrayRef<ModelProgram> programs = kModelPrograms,
                 const ImportOptions &options = {});

} // namespace qwen

#endif // QWEN_IMPORT_MODELS_IMPORT_H
