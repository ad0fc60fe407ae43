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
#define QWEN_KV_FORMAT(Id, Name, Codes, CodeBits, ScaleBytes, HasOffset,       \
                       Overflows, Help)                                        \
  clEnumValN(KvFormat::Id, #Name, Help),
#include "qwen/ABI/KvFormats.def"
  };
}

llvm::raw_ostream &qwen::operator<<(llvm::raw_ostream &out,
                                    const MatrixFormat &matrix) {
  return out << matrix.name << '=' << weightFormatName(matrix.format);
}

bool llvm::cl::parser<MatrixFormat>::parse(Option &option, StringRef,
                                           StringRef text,
                                           MatrixFormat &matrix) {
  const auto [name, format] = text.rsplit('=');
  const auto parsed = parseWeightFormat(format);
  if (!parsed)
    return option.error("'" + text + "' is not NAME=FORMAT, where FORMAT is " +
                        weightFormatList());
  matrix = {name.str(), *parsed};
  return false;
}

llvm::raw_ostream &qwen::operator<<(llvm::raw_ostream &out,
                                    const KvLayer &layer) {
  return out << layer.layer << '=' << kvFormatName(layer.format);
}

bool llvm::cl::parser<KvLayer>::parse(Option &option, StringRef, StringRef text,
                                      KvLayer &layer) {
  const auto [number, format] = text.split('=');
  const auto parsed = parseKvFormat(format);
  int64_t value = 0;
  if (!parsed || number.getAsInteger(10, value))
    return option.error("'" + text + "' is not LAYER=FORMAT, where FORMAT is " +
                        kvFormatList());
  layer = {value, *parsed};
  return false;
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
  QuantizeOptions quantize = {options.weights, {}, options.kv, {}};
  for (const auto &[name, format] : options.formats)
    quantize.formats.push_back({name, format});
  for (const auto &[layer, format] : options.kvLayers)
    quantize.kvLayers.push_back({layer, format});
  manager.addPass(createQuantize(quantize));
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
  ListOption<MatrixFormat> formats{
      *this, "formats",
      llvm::cl::desc("formats of single matrices, as NAME=FORMAT")};
  Option<KvFormat> kv{*this, "kv", llvm::cl::desc("format of the KV cache"),
                      llvm::cl::init(PipelineOptions().kv), kvFormatValues()};
  ListOption<KvLayer> kvLayers{
      *this, "kv-layers",
      llvm::cl::desc(
          "formats of keys and values of single layers, as LAYER=FORMAT")};
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
        MatrixFormats formats;
        for (const auto &[name, format] : text.formats)
          formats.insert_or_assign(name, format);
        KvLayers kvLayers;
        for (const auto &[layer, format] : text.kvLayers)
          kvLayers.insert_or_assign(layer, format);
        buildPipeline(manager, {text.weights, std::move(formats), text.kv,
                                std::move(kvLayers), text.last});
      });
}
