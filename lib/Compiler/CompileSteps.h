//===- CompileSteps.h - The steps of a compile ------------------*- C++ -*-===//

#ifndef QWEN_LIB_COMPILER_COMPILESTEPS_H
#define QWEN_LIB_COMPILER_COMPILESTEPS_H

#include "qwen/CodeGen/Artifact/Code.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Import/Tokenizer/TokenizerBlob.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

/// One compile runs at a time: lld and the signal handlers of LLVM are one for
/// each process.
std::mutex &compileMutex();

/// Throws the current exception, as Error if the C++ library threw it; but
/// std::bad_alloc stays.
[[noreturn]] void throwError();

/// Runs the passes up to `last` for a target with `features`. Throws their
/// first error as Error.
void runPasses(mlir::ModuleOp module, CpuFeatureSet features,
               PipelineOptions options, Stage last);

/// The steps from a checkpoint to the modules of all targets.
class Compile {
public:
  Compile(const std::filesystem::path &checkpoint, CompileOptions given,
          CompileHooks added);

  /// Brings the model to `stage`, once for each target. At stage "calls" the
  /// targets are sorted, best first.
  std::vector<TargetCode> run(Stage stage);

  /// The weights of the model in the formats of `choice`, at stage "packed" for
  /// the first target.
  mlir::OwningOpRef<mlir::ModuleOp> packed(const WeightChoice &choice);

  /// The tokenizer, if the checkpoint has one.
  std::optional<TokenizerImport> importTokenizer() const;

  /// Scales channels, if the caller does that.
  void scaleChannels(const std::optional<TokenizerImport> &tokenizer);
  /// Folds rotations into the weights, once for all targets, if the model is
  /// rotated.
  void rotate();
  /// Lets the quantizer choose the integers of matrices. Returns what was done
  /// to the weights.
  Quantization quantize(const std::optional<TokenizerImport> &tokenizer);

  const ImportedModel &imported() const { return model; }
  /// Lines about integers that were found.
  const std::vector<std::string> &notes() const { return gridNotes; }
  const Checkpoint &checkpoint() const { return *model.checkpoint; }
  int64_t positions() const { return contextLength; }
  KvFormat kvFormat() const {
    return options.kv.value_or(weights == WeightChoice(WeightFormat::F32)
                                   ? KvFormat::F32
                                   : KvFormat::F16);
  }

  QuantizeInput quantizeInput(const std::optional<TokenizerImport> &tokenizer);

private:
  void checkTemplate(const TokenizerImport &tokenizer) const;
  void setLimits();
  void keepGrids();
  bool hasIntegers();
  bool isRotated();
  mlir::OwningOpRef<mlir::ModuleOp> quantizedModule();
  PipelineOptions pipelineOptions(const WeightChoice &choice) const;
  void warn(const std::string &warning) const {
    if (hooks.warn)
      hooks.warn(warning);
  }

  const CompileOptions options;
  const CompileHooks hooks;
  std::vector<Target> targets;
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  ImportedModel model;
  WeightChoice weights;
  std::vector<std::string> gridNotes;
  int64_t contextLength = 0;
  Quantization quantization;
};

} // namespace qwen

#endif // QWEN_LIB_COMPILER_COMPILESTEPS_H
