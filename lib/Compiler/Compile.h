//===- Compile.h - From a checkpoint to modules -----------------*- C++ -*-===//

#ifndef QWEN_LIB_COMPILER_COMPILE_H
#define QWEN_LIB_COMPILER_COMPILE_H

#include "ModelState.h"

#include "qwen/CodeGen/Artifact/Code.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <mutex>
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

/// One compile: a model, what the steps make of it, and its modules for all
/// targets.
class Compile {
public:
  Compile(const std::filesystem::path &checkpoint, CompileOptions options,
          CompileHooks hooks);

  /// Imports the tokenizer, if the checkpoint has one.
  void importTokenizer();
  /// Runs the steps up to `last` that have not run. Functions of the caller may
  /// run other compiles: the mutex must be free where hooks are given.
  void runSteps(StepId last = StepId::Integers);

  /// Brings the model to `stage`, once for each target. At stage "calls" the
  /// targets are sorted, best first.
  std::vector<TargetCode> run(Stage stage);
  /// The same with other formats of matrices.
  std::vector<TargetCode> run(Stage stage, const MatrixFormats &formats);

  /// The weights of the model in the formats of `choice`, but for those that
  /// rules name, at stage "packed" for the first target.
  mlir::OwningOpRef<mlir::ModuleOp> packed(const WeightChoice &choice);

  const ModelState &state() const { return model; }
  ModelState &state() { return model; }
  const Checkpoint &checkpoint() const { return *model.model.checkpoint; }
  int64_t positions() const { return contextLength; }

private:
  void checkTemplate(const TokenizerImport &tokenizer) const;
  PipelineOptions pipelineOptions() const;
  void warn(const std::string &warning) const {
    if (hooks.warn)
      hooks.warn(warning);
  }

  const CompileOptions options;
  const CompileHooks hooks;
  std::vector<Target> targets;
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  ModelState model;
  size_t nextStep = 0;
  int64_t contextLength = 0;
};

} // namespace qwen

#endif // QWEN_LIB_COMPILER_COMPILE_H
