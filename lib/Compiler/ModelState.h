//===- ModelState.h - What the steps of a compile change --------*- C++ -*-===//

#ifndef QWEN_LIB_COMPILER_MODELSTATE_H
#define QWEN_LIB_COMPILER_MODELSTATE_H

#include "qwen/ABI/Quantization.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Import/Tokenizer/TokenizerBlob.h"

#include "mlir/Pass/PassManager.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

/// What the steps of a compile read and change. They see no target.
struct ModelState {
  /// The module at stage "graph", and the checkpoint with the weights.
  ImportedModel model;
  std::optional<TokenizerImport> tokenizer;
  FormatPlan plan;
  /// Whether rotations are or will be folded into the weights.
  bool rotated = false;
  /// What the manifest says about the steps. The layers that were removed are
  /// in the checkpoint's configuration.
  Quantization record;
  /// Lines for the summary.
  std::vector<std::string> notes;

  mlir::ModuleOp module() const { return *model.module; }
  const ModelConfig &config() const { return model.checkpoint->config(); }
};

/// A step of a compile, in their order.
enum class StepId : uint8_t {
  /// Removes the layers that the caller chooses.
  Layers,
  /// Gives drafts a head of the tokens that the caller chooses.
  DraftTokens,
  /// Chooses formats and quantizers of matrices, and whether to rotate.
  Formats,
  /// Scales channels, if the caller does that.
  Channels,
  /// Folds rotations into the weights of a rotated model.
  Rotation,
  /// Lets quantizers choose the integers of matrices.
  Integers
};
inline constexpr size_t kStepCount = 6;

/// Runs a step. Functions of the caller may run other compiles.
void runStep(StepId step, ModelState &state, const CompileOptions &options,
             const CompileHooks &hooks);

/// The model with the formats and quantizers of the matrices that do not have
/// their integers yet.
QuantizeInput quantizeInput(ModelState &state);

/// The model of a checkpoint without the layers of `pruning`, with a head of
/// `draftTokens` for drafts unless that is empty, and with the limits of a
/// call. Throws Error like importCheckpoint, and if a call would have more rows
/// than tokens.
ImportedModel importModel(const std::filesystem::path &path,
                          mlir::MLIRContext &context,
                          const CompileOptions &options, const Pruning &pruning,
                          const std::vector<int32_t> &draftTokens = {});

/// Runs the passes. Throws their first error as Error.
void runManager(mlir::ModuleOp module, mlir::PassManager &manager);

} // namespace qwen

#endif // QWEN_LIB_COMPILER_MODELSTATE_H
