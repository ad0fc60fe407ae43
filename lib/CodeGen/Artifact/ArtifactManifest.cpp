//===- ArtifactManifest.cpp - The manifest of a compiled model ------------===//

#include "ArtifactManifest.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Lower/CacheList.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Version.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using json = nlohmann::ordered_json;

/// Adds the facts of `object` to `to`.
template <typename Struct>
static void write(llvm::ArrayRef<Fact<Struct>> facts, const Struct &object,
                  json &to) {
  for (const Fact<Struct> &fact : facts)
    fact.visitIn(object, [&](auto value) { to[fact.key] = value; });
}

static json describeModel(const ArtifactInput &input) {
  const ModelConfig &config = input.checkpoint->config();
  int64_t tokens = config.vocabSize;
  if (*input.tokenizer)
    tokens = std::min<int64_t>(tokens, (*input.tokenizer)->vocabSize);
  json model = {{"name", input.name},
                {"tokenizer_vocab", tokens},
                {"context", input.context}};
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
  std::vector<CacheInfo> caches;
  for (mlir::func::FuncOp program : programsOf(module))
    for (const CacheInfo &cache : cachesOf(program))
      mergeCache(caches, cache);
  const int64_t bytes = bytesOf(caches, CacheKind::Paged);
  return {{"page_tokens", kPageTokens},
          {"page_bytes", bytes * kPageTokens},
          {"token_bytes", bytes}};
}

/// An attribute of a program, whose dictionaries are objects of the manifest.
static json toJson(mlir::Attribute attribute) {
  if (auto fields = llvm::dyn_cast<mlir::DictionaryAttr>(attribute)) {
    json object = json::object();
    for (const mlir::NamedAttribute &field : fields)
      object[field.getName().str()] = toJson(field.getValue());
    return object;
  }
  if (auto elements = llvm::dyn_cast<mlir::ArrayAttr>(attribute)) {
    json array = json::array();
    for (mlir::Attribute element : elements)
      array.push_back(toJson(element));
    return array;
  }
  if (auto numbers = llvm::dyn_cast<mlir::DenseI64ArrayAttr>(attribute))
    return numbers.asArrayRef().vec();
  if (auto text = llvm::dyn_cast<mlir::StringAttr>(attribute))
    return text.str();
  if (auto flag = llvm::dyn_cast<mlir::BoolAttr>(attribute))
    return flag.getValue();
  if (auto number = llvm::dyn_cast<mlir::FloatAttr>(attribute))
    return number.getValueAsDouble();
  return llvm::cast<mlir::IntegerAttr>(attribute).getInt();
}

/// For each op of `program`, the places of its kernels in the list of `code`.
static json describeKernels(const TargetCode &code,
                            mlir::func::FuncOp program) {
  const std::vector<std::string> kernels = calledKernels(*code.module);
  json ops = json::array();
  for (auto names : program->getAttrOfType<mlir::ArrayAttr>(kOpKernelsAttr)
                        .getAsRange<mlir::ArrayAttr>()) {
    json &indices = ops.emplace_back(json::array());
    for (auto kernel : names.getAsRange<KernelAttr>())
      indices.push_back(llvm::find(kernels, kernel.getInfo()->name) -
                        kernels.begin());
  }
  return ops;
}

/// The limits of a call. The program's own counts come in the order of
/// Context::counts.
static json describeLimits(mlir::func::FuncOp program) {
  const auto names = program->getAttrOfType<mlir::ArrayAttr>(kCountsAttr)
                         .getAsRange<mlir::StringAttr>();
  json limits = {{"tokens", *limitOf(program, *names.begin())}};
  if (const auto rows = limitOf(program, kWantedName))
    limits["rows"] = *rows;
  if (program->hasAttr(kStepBackAttr)) {
    limits["step_back"] = toJson(program->getAttr(kStepBackAttr));
    limits["state_rows"] = true;
  }
  for (mlir::StringAttr name : llvm::drop_begin(names))
    limits["counts"].push_back(
        {{"name", name.str()}, {"most", *limitOf(program, name)}});
  return limits;
}

static json describePrograms(llvm::ArrayRef<TargetCode> targets) {
  json list = json::array();
  for (auto [i, program] :
       llvm::enumerate(programsOf(*targets.front().module))) {
    json kernels = json::array();
    for (const TargetCode &code : targets)
      kernels.push_back(describeKernels(code, programsOf(*code.module)[i]));
    const auto fact = [&](const char *attribute) {
      return toJson(program->getAttr(attribute));
    };
    list.push_back({{"name", program.getSymName().str()},
                    {"model", fact(kModelAttr)},
                    {"limits", describeLimits(program)},
                    {"arena_bytes", fact(kArenaBytesAttr)},
                    {"caches", fact(kCachesAttr)},
                    {"inputs", fact(kInputsAttr)},
                    {"outputs", fact(kOutputsAttr)},
                    {"ops", fact(kOpsAttr)},
                    {"work", fact(kWorkAttr)},
                    {"kernels", std::move(kernels)}});
  }
  return list;
}

/// The images beside the file's own.
static json describeImages(mlir::ModuleOp module) {
  json list = json::array();
  for (ImageOp image : module.getOps<ImageOp>())
    list.push_back(
        {{"name", image.getSymName().str()}, {"bytes", *image.getBytes()}});
  return list;
}

static json describeTensors(mlir::ModuleOp module) {
  const mlir::SymbolTable symbols(module);
  json tensors = json::array();
  for (PackedOp packed : module.getOps<PackedOp>()) {
    if (packed.getImage())
      continue;
    const auto type = llvm::cast<mlir::ShapedType>(packed.getType());
    json segments = json::array();
    for (auto symbol :
         packed.getSegments().getAsRange<mlir::FlatSymbolRefAttr>()) {
      auto weight = symbols.lookup<WeightOp>(symbol.getValue());
      segments.push_back(
          {{"name", symbol.getValue().str()},
           {"outputs",
            llvm::cast<mlir::ShapedType>(weight.getType()).getDimSize(0)}});
    }
    const auto layout = packed.getLayout();
    json &tensor = tensors.emplace_back(json{
        {"name", packed.getSymName().str()},
        {"shape", type.getShape().vec()},
        {"format",
         weightFormatName(layout ? layout->getFormat() : WeightFormat::F32)},
        {"offset", packed.getOffset()},
        {"bytes", packed.getByteSize()},
        {"segments", std::move(segments)}});
    if (packed.getExperts()) {
      tensor["experts"] = *packed.getExperts();
      tensor["stride"] = *packed.getStride();
    }
  }
  return tensors;
}

static json describeGeneration(const GenerationConfig &config) {
  json result = json::object();
  write<GenerationConfig>(kSamplingFacts, config, result);
  result["eos_token_id"] = config.eosTokenIds;
  if (config.bosTokenId)
    result["bos_token_id"] = *config.bosTokenId;
  return result;
}

static json describeQuantization(const Quantization &quantization) {
  json result = {{"quantizer", quantization.quantizer}};
  write<Quantization>(kQuantizationFacts, quantization, result);
  result["text"] = quantization.text;
  if (quantization.distilled != DistilledScales())
    write<DistilledScales>(kDistilledFacts, quantization.distilled,
                           result["distilled"]);
  return result;
}

static json describeTarget(const TargetCode &code, CpuFeatureSet features) {
  return {{"name", code.target.name},
          {"arch", archName(code.target.arch)},
          {"features", features.names()},
          {"kernels", calledKernels(*code.module)}};
}

static std::string toText(const json &manifest) {
  // Replaces bytes of names that are not UTF-8; by default, dump would throw.
  return manifest.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// The manifest's facts of the code, with `described` targets. Facts other than
/// kernels come from the module of any target, because all have the same.
static json describeCode(llvm::ArrayRef<TargetCode> targets, json described) {
  json code = {{"targets", std::move(described)},
               {"kv", describeKv(*targets.front().module)},
               {"programs", describePrograms(targets)}};
  if (json images = describeImages(*targets.front().module); !images.empty())
    code["images"] = std::move(images);
  return code;
}

static json describeTargets(llvm::ArrayRef<TargetCode> targets) {
  json described = json::array();
  for (const TargetCode &code : targets)
    described.push_back(
        describeTarget(code, usedFeatures(*code.module, code.target.arch)));
  return described;
}

static json describe(const ArtifactInput &input, const json &code) {
  json manifest = {{"compiler", std::string("qwen-opt ") + projectVersion()},
                   {"numerics_version", kNumericsVersion},
                   {"model", describeModel(input)}};
  manifest.update(code);
  manifest["generation"] = describeGeneration(input.checkpoint->generation());
  if (const Pruning &pruning = input.checkpoint->config().pruning;
      pruning != Pruning())
    manifest["pruning"] = {{"method", pruning.method},
                           {"layers", pruning.layers}};
  if (input.quantization != Quantization())
    manifest["quantization"] = describeQuantization(input.quantization);
  return manifest;
}

std::string qwen::writeManifest(llvm::ArrayRef<TargetCode> targets,
                                const ArtifactInput &input) {
  json manifest =
      describe(input, describeCode(targets, describeTargets(targets)));
  manifest["tensors"] = describeTensors(*targets.front().module);
  return toText(manifest);
}

std::string qwen::writeKernelManifest(const TargetCode &code,
                                      const ArtifactInput &input,
                                      CpuFeatureSet features) {
  json manifest = describe(
      input, describeCode(code, json::array({describeTarget(code, features)})));
  manifest["tensors"] = json::array();
  return toText(manifest);
}

std::string qwen::writeCodeManifest(const TargetCode &code) {
  return toText(describeCode(code, describeTargets(code)));
}
