//===- Pipeline.cpp - The order of the passes -----------------------------===//

#include "qwen/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace qwen;

llvm::cl::ValuesClass qwen::weightFormatValues() {
  return {
#define QWEN_WEIGHT_FORMAT(Id, Name, Coding, Scales, Block, Encoder, Help,     \
                           ...)                                                \
  clEnumValN(WeightFormat::Id, #Name, Help),
#include "qwen/ABI/WeightFormats.def"
  };
}

llvm::cl::ValuesClass qwen::kvFormatValues() {
  return {
#define QWEN_KV_FORMAT(Id, Name, Bytes, Overflows, Help)                       \
  clEnumValN(KvFormat::Id, #Name, Help),
#include "qwen/ABI/KvFormats.def"
  };
}

static void addStageVerifier(OpPassManager &manager, Stage stage) {
  manager.addPass(createVerifyStage({stage}));
}

void qwen::buildPipeline(OpPassManager &manager,
                         const PipelineOptions &options) {
  addStageVerifier(manager, Stage::Graph);
  if (options.last == Stage::Graph)
    return;
  manager.addPass(createFuseEpilogues());
  manager.addPass(
      createQuantize({options.weights, options.tensorWeights, options.kv}));
  manager.addPass(createFuseProjections());
  manager.addPass(createFuseAttention());
  manager.addPass(createFuseQuantize());
  addStageVerifier(manager, Stage::Quantized);
  if (options.last == Stage::Quantized)
    return;
  manager.addPass(createSelectKernels());
  manager.addPass(createPack());
  manager.addPass(createPlan());
  manager.addPass(createVerifyPlan());
  addStageVerifier(manager, Stage::Packed);
}

namespace {
/// PipelineOptions as the pass driver's text.
struct TextOptions : PassPipelineOptions<TextOptions> {
  Option<WeightFormat> weights{
      *this, "weights", llvm::cl::desc("format of the matrices"),
      llvm::cl::init(PipelineOptions().weights), weightFormatValues()};
  ListOption<std::string> tensorWeights{
      *this, "tensor-weights",
      llvm::cl::desc("formats of single matrices, as REGEX=FORMAT")};
  Option<KvFormat> kv{*this, "kv", llvm::cl::desc("format of the KV cache"),
                      llvm::cl::init(PipelineOptions().kv), kvFormatValues()};
  Option<Stage> last{
      *this, "last", llvm::cl::desc("the stage to end with"),
      llvm::cl::init(PipelineOptions().last),
      llvm::cl::values(
          clEnumValN(Stage::Graph, "graph", "as imported"),
          clEnumValN(Stage::Quantized, "quantized", "fused, with formats"),
          clEnumValN(Stage::Packed, "packed",
                     "with kernels, weight image and plan"))};
};
} // namespace

void qwen::registerPipeline() {
  PassPipelineRegistration<TextOptions>(
      "qwen-pipeline", "Brings an imported graph to the packed stage",
      [](OpPassManager &manager, const TextOptions &text) {
        buildPipeline(manager,
                      {text.weights,
                       llvm::to_vector_of<std::string>(text.tensorWeights),
                       text.kv, text.last});
      });
}
