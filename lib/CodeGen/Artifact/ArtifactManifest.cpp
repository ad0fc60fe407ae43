//===- ArtifactManifest.cpp - The manifest of a compiled model ------------===//

#include "ArtifactManifest.h"

#include "qwen/ABI/Artifact.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Lower/Caches.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Version.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using json = nlohmann::ordered_json;

static int64_t integer(mlir::func::FuncOp program, const char *attribute) {
  return program->getAttrOfType<mlir::IntegerAttr>(attribute).getInt();
}

static json describeModel(const ArtifactInput &input) {
  const ModelConfig &config = input.checkpoint->config();
  int64_t tokens = config.vocabSize;
  if (*input.tokenizer)
    tokens = std::min<int64_t>(tokens, (*input.tokenizer)->vocabSize);
  json model = {{"architecture", infoOf(config.architecture).name},
                {"name", input.name},
                {"vocab_size", config.vocabSize},
                {"tokenizer_vocab", tokens},
                {"hidden_size", config.hiddenSize},
                {"layers", config.layers},
                {"heads", config.heads},
                {"kv_heads", config.kvHeads},
                {"head_dim", config.headDim},
                {"intermediate_size", config.intermediateSize},
                {"rope_theta", config.ropeTheta},
                {"rms_norm_eps", config.rmsNormEps},
                {"tied", config.tied},
                {"context", input.context},
                {"max_context", config.maxPosition}};
  const ModelOutput &output = config.output;
  if (output.kind != OutputKind::Logits)
    model["output"] = outputKindName(output.kind);
  if (!output.labels.empty())
    model["labels"] = output.labels;
  if (output.pooling != kLastPooling)
    model["pooling"] = output.pooling;
  return model;
}

static json describeKv(mlir::ModuleOp module) {
  const int64_t bytes =
      bytesOf(cachesOf(programsOf(module).front()), CacheKind::Paged);
  const auto format = module->getAttrOfType<KvFormatAttr>(kKvFormatAttr);
  return {{"format", kvFormatName(format.getValue())},
          {"page_tokens", kPageTokens},
          {"page_bytes", bytes * kPageTokens},
          {"token_bytes", bytes}};
}

static json describeCaches(mlir::func::FuncOp program) {
  json caches = json::array();
  for (const CacheInfo &cache : cachesOf(program))
    caches.push_back({{"name", cache.name},
                      {"kind", cacheKindName(cache.kind)},
                      {"layer_bytes", cache.layerBytes},
                      {"layers", cache.layers}});
  return caches;
}

/// The format of all matrices, or "mixed".
static std::string_view weightsFormat(mlir::ModuleOp module) {
  std::optional<WeightFormat> found;
  for (PackedOp packed : module.getOps<PackedOp>())
    if (const auto layout = packed.getLayout()) {
      const WeightFormat format = layout->getFormat();
      if (found.value_or(format) != format)
        return "mixed";
      found = format;
    }
  return weightFormatName(found.value_or(WeightFormat::F32));
}

static json describeTensors(mlir::ModuleOp module) {
  const mlir::SymbolTable symbols(module);
  json tensors = json::array();
  for (PackedOp packed : module.getOps<PackedOp>()) {
    const auto type = llvm::cast<mlir::ShapedType>(packed.getType());
    json segments = json::array();
    for (auto symbol :
         packed.getSegments().getAsRange<mlir::FlatSymbolRefAttr>()) {
      auto weight = symbols.lookup<WeightOp>(symbol.getValue());
      segments.push_back(
          {{"name", symbol.getValue().str()},
           {"rows",
            llvm::cast<mlir::ShapedType>(weight.getType()).getDimSize(0)}});
    }
    const auto layout = packed.getLayout();
    tensors.push_back({{"name", packed.getSymName().str()},
                       {"shape", type.getShape().vec()},
                       {"format", weightFormatName(layout ? layout->getFormat()
                                                          : WeightFormat::F32)},
                       {"offset", packed.getOffset()},
                       {"bytes", packed.getByteSize()},
                       {"segments", std::move(segments)}});
  }
  return tensors;
}

static json describeGeneration(const GenerationConfig &config) {
  json result = {{"do_sample", config.doSample},
                 {"temperature", config.temperature},
                 {"top_k", config.topK},
                 {"top_p", config.topP},
                 {"min_p", config.minP},
                 {"repetition_penalty", config.repetitionPenalty},
                 {"eos_token_id", config.eosTokenIds}};
  if (config.bosTokenId)
    result["bos_token_id"] = *config.bosTokenId;
  return result;
}

static json describeTarget(const TargetCode &code, CpuFeatureSet features) {
  const std::vector<std::string> kernels = calledKernels(*code.module);
  json opKernels = json::array();
  for (auto names : programsOf(*code.module)
                        .front()
                        ->getAttrOfType<mlir::ArrayAttr>(kOpKernelsAttr)
                        .getAsRange<mlir::ArrayAttr>()) {
    json indices = json::array();
    for (auto kernel : names.getAsRange<KernelAttr>())
      indices.push_back(llvm::find(kernels, kernel.getInfo()->name) -
                        kernels.begin());
    opKernels.push_back(std::move(indices));
  }
  return {{"name", code.target.name},
          {"arch", archName(code.target.arch)},
          {"features", features.names()},
          {"kernels", kernels},
          {"op_kernels", std::move(opKernels)}};
}

/// The manifest with `targets`. Its other facts come from the module of any
/// target.
static json describe(mlir::ModuleOp module, const ArtifactInput &input,
                     json targets) {
  mlir::func::FuncOp forward = programsOf(module).front();
  json ops = json::array();
  for (auto name : forward->getAttrOfType<mlir::ArrayAttr>(kOpsAttr)
                       .getAsRange<mlir::StringAttr>())
    ops.push_back(name.getValue().str());
  json work = json::array();
  for (auto of : forward->getAttrOfType<mlir::ArrayAttr>(kWorkAttr)
                     .getAsRange<mlir::DictionaryAttr>()) {
    json fields = json::object();
    for (const mlir::NamedAttribute &field : of)
      if (auto text = llvm::dyn_cast<mlir::StringAttr>(field.getValue()))
        fields[field.getName().str()] = text.getValue().str();
      else if (auto flag = llvm::dyn_cast<mlir::BoolAttr>(field.getValue()))
        fields[field.getName().str()] = flag.getValue();
      else
        fields[field.getName().str()] =
            llvm::cast<mlir::IntegerAttr>(field.getValue()).getInt();
    work.push_back(std::move(fields));
  }
  return {
      {"compiler", std::string("qwen-opt ") + projectVersion()},
      {"numerics_version", kNumericsVersion},
      {"model", describeModel(input)},
      {"targets", std::move(targets)},
      {"weights", {{"format", weightsFormat(module)}}},
      {"kv", describeKv(module)},
      {"caches", describeCaches(forward)},
      {"limits",
       {{"tokens", integer(forward, kMaxTokensAttr)},
        {"rows", integer(forward, kMaxRowsAttr)}}},
      {"arena_bytes", integer(forward, kArenaBytesAttr)},
      {"output_stride", integer(forward, kResultStrideAttr)},
      {"ops", std::move(ops)},
      {"work", std::move(work)},
      {"tensors", describeTensors(module)},
      {"generation", describeGeneration(input.checkpoint->generation())},
  };
}

static std::string toText(const json &manifest) {
  // Replaces bytes of names that are not UTF-8; by default, dump would throw.
  return manifest.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string qwen::writeManifest(llvm::ArrayRef<TargetCode> targets,
                                const ArtifactInput &input) {
  json described = json::array();
  for (const TargetCode &code : targets)
    described.push_back(
        describeTarget(code, usedFeatures(*code.module, code.target.arch)));
  return toText(describe(*targets.front().module, input, std::move(described)));
}

std::string qwen::writeKernelManifest(const TargetCode &code,
                                      const ArtifactInput &input,
                                      CpuFeatureSet features) {
  json manifest = describe(*code.module, input,
                           json::array({describeTarget(code, features)}));
  manifest["tensors"] = json::array();
  return toText(manifest);
}
