//===- Passes.h - Passes over the qwen dialect ------------------*- C++ -*-===//
//
// The passes turn the importer's graph into planned ops for the code generator.
// Passes.td describes each pass, docs/architecture.md their order.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TRANSFORMS_PASSES_H
#define QWEN_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/KvLayers.h"
#include "qwen/Transforms/MatrixFormats.h"
#include "llvm/Support/CommandLine.h"

namespace qwen {

/// The formats of weights, as an option of a pass takes them.
llvm::cl::ValuesClass weightFormatValues();
llvm::cl::ValuesClass kvFormatValues();

#define GEN_PASS_DECL
#include "qwen/Transforms/Passes.h.inc"

struct PipelineOptions {
  WeightFormat weights = WeightFormat::Q4_0;
  /// In place of `weights`.
  MatrixFormats formats = {};
  KvFormat kv = KvFormat::F16;
  /// In place of `kv`.
  KvLayers kvLayers = {};
  /// The pipeline ends once this stage is reached and verified.
  Stage last = Stage::Packed;
};

/// Adds the passes that bring an imported graph to `options.last`, and a stage
/// verifier after the last pass of each stage. The pipeline does not lower to
/// calls: `last` is at most Stage::Packed. Stage::Packed requires
/// qwen.target_features of the module, and qwen.limits of each program.
void buildPipeline(mlir::OpPassManager &manager,
                   const PipelineOptions &options);

/// Registers the pipeline as `qwen-pipeline` for the pass driver.
void registerPipeline();

#define GEN_PASS_REGISTRATION
#include "qwen/Transforms/Passes.h.inc"

} // namespace qwen

#endif // QWEN_TRANSFORMS_PASSES_H
