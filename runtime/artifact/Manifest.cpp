//===- Manifest.cpp - Facts of a compiled model ---------------------------===//

#include "artifact/Manifest.h"

#include "qwen/ABI/Artifact.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

using namespace qwen;
using nlohmann::json;

static constexpr int64_t kMaxDimension = int64_t{1} << 31;
static constexpr int64_t kMaxContext = int64_t{1} << 30;
static constexpr int64_t kMaxBytes = int64_t{1} << 46;

/// A name for commands to print, made safe for terminals.
static std::string nameOf(const JsonValue &value) {
  return printable(value.string());
}

static ModelOutput parseOutput(const JsonValue &model) {
  ModelOutput output;
  if (const auto kind = model.findValue("output")) {
    const std::optional<OutputKind> parsed = parseOutputKind(kind->string());
    if (!parsed)
      kind->fail("\"logits\", \"scores\" or \"none\"");
    output.kind = *parsed;
  }
  if (const auto pooling = model.findValue("pooling"))
    output.pooling = nameOf(*pooling);
  if (output.kind != OutputKind::Scores)
    return output;
  const JsonValue labels = model.at("labels");
  for (const JsonValue &label : labels.elements())
    output.labels.push_back(label.string());
  if (!areSupported(output.labels))
    labels.fail("an array of \"yes\" and \"no\"");
  return output;
}

static ModelInfo parseModel(const JsonValue &value) {
  ModelInfo model;
  model.architecture = nameOf(value.at("architecture"));
  model.name = nameOf(value.at("name"));
  model.vocabSize = value.at("vocab_size").integer(1, kMaxDimension);
  model.tokenizerVocab =
      value.at("tokenizer_vocab").integer(1, model.vocabSize);
  model.hiddenSize =
      value.at("hidden_size").multiple(kGroup, kGroup, kMaxDimension);
  model.layers = value.at("layers").integer(1, 65536);
  model.heads = value.at("heads").integer(1, 65536);
  model.kvHeads = value.at("kv_heads").integer(1, model.heads);
  if (model.heads % model.kvHeads != 0)
    value.at("kv_heads")
        .fail("a divisor of heads, " + std::to_string(model.heads) + ",");
  model.headDim = value.at("head_dim").multiple(8, 16, 256);
  if (model.heads * model.headDim % kGroup != 0)
    value.at("heads").fail("a number whose product with head_dim " +
                           std::to_string(model.headDim) +
                           " is a multiple of " + std::to_string(kGroup));
  model.intermediateSize =
      value.at("intermediate_size").multiple(kGroup, kGroup, kMaxDimension);
  model.ropeTheta = value.at("rope_theta").number(1e-30, 1e30);
  model.rmsNormEps = value.at("rms_norm_eps").number(0, 1);
  model.tied = value.at("tied").boolean();
  model.context = value.at("context").integer(1, kMaxContext);
  const auto most = value.findValue("max_context");
  model.maxContext =
      most ? most->integer(model.context, kMaxContext) : model.context;
  model.output = parseOutput(value);
  return model;
}

static TargetInfo parseTarget(const JsonValue &value) {
  TargetInfo target;
  const JsonValue name = value.at("name");
  target.name = nameOf(name);
  if (target.name.empty())
    name.fail("a name");
  const JsonValue arch = value.at("arch");
  if (arch.string() == archName(Arch::X86_64))
    target.arch = Arch::X86_64;
  else if (arch.string() == archName(Arch::AArch64))
    target.arch = Arch::AArch64;
  else
    arch.fail("\"x86-64\" or \"aarch64\"");
  for (const JsonValue &feature : value.at("features").elements()) {
    const std::optional<CpuFeature> parsed = parseFeature(feature.string());
    if (!parsed || featureArch(*parsed) != target.arch)
      feature.fail("a CPU feature of " + std::string(archName(target.arch)) +
                   " that this version knows");
    target.features.insert(*parsed);
  }
  for (const JsonValue &kernel : value.at("kernels").elements())
    target.kernels.push_back(nameOf(kernel));
  if (const auto ops = value.findValue("op_kernels"))
    for (const JsonValue &indices : ops->elements()) {
      std::vector<size_t> &kernels = target.opKernels.emplace_back();
      for (const JsonValue &index : indices.elements())
        kernels.push_back(static_cast<size_t>(
            index.integer(0, static_cast<int64_t>(target.kernels.size()) - 1)));
    }
  return target;
}

static WeightFormat parseFormat(const JsonValue &value) {
  const std::optional<WeightFormat> format = parseWeightFormat(value.string());
  if (!format)
    value.fail(weightFormatList());
  return *format;
}

/// Parses one of the caches, which together have up to `most` bytes.
static CacheInfo parseCache(const JsonValue &value, const ModelInfo &model,
                            int64_t most) {
  CacheInfo cache;
  cache.name = nameOf(value.at("name"));
  const JsonValue kind = value.at("kind");
  const std::optional<CacheKind> parsed = parseCacheKind(kind.string());
  if (!parsed)
    kind.fail("\"paged\" or \"fixed\"");
  cache.kind = *parsed;
  const JsonValue layers = value.at("layers");
  for (const JsonValue &layer : layers.elements()) {
    const int64_t number = layer.integer(0, model.layers - 1);
    if (!cache.layers.empty() && number <= cache.layers.back())
      layer.fail("a number above " + std::to_string(cache.layers.back()));
    cache.layers.push_back(number);
  }
  if (cache.layers.empty())
    layers.fail("at least one layer");
  const auto align = static_cast<int64_t>(kTensorAlign);
  cache.layerBytes =
      value.at("layer_bytes")
          .multiple(cache.kind == CacheKind::Fixed ? align : 1, 1,
                    most / static_cast<int64_t>(cache.layers.size()));
  return cache;
}

static KvInfo parseKv(const JsonValue &value,
                      std::span<const CacheInfo> caches) {
  KvInfo kv;
  const JsonValue format = value.at("format");
  const std::optional<KvFormat> parsed = parseKvFormat(format.string());
  if (!parsed)
    format.fail("\"f32\" or \"f16\"");
  kv.format = *parsed;
  value.at("page_tokens").integer(kPageTokens, kPageTokens);
  const int64_t tokenBytes = bytesOf(caches, CacheKind::Paged);
  kv.tokenBytes = value.at("token_bytes").integer(tokenBytes, tokenBytes);
  kv.pageBytes =
      value.at("page_bytes")
          .integer(tokenBytes * kPageTokens, tokenBytes * kPageTokens);
  return kv;
}

static TensorInfo parseTensor(const JsonValue &value, uint64_t weightBytes) {
  TensorInfo tensor;
  tensor.name = nameOf(value.at("name"));
  for (const JsonValue &size : value.at("shape").elements())
    tensor.shape.push_back(size.integer(1, kMaxDimension));
  tensor.format = parseFormat(value.at("format"));
  const int64_t most =
      std::min<uint64_t>(weightBytes, static_cast<uint64_t>(kMaxBytes));
  const int64_t offset = value.at("offset").integer(0, most);
  if (offset % static_cast<int64_t>(kTensorAlign) != 0)
    value.at("offset").fail("a multiple of " + std::to_string(kTensorAlign));
  tensor.offset = static_cast<uint64_t>(offset);
  tensor.bytes =
      static_cast<uint64_t>(value.at("bytes").integer(0, most - offset));
  for (const JsonValue &segment : value.at("segments").elements())
    tensor.segments.push_back({nameOf(segment.at("name")),
                               segment.at("rows").integer(1, kMaxDimension)});
  return tensor;
}

static OpWork parseWork(const JsonValue &value) {
  OpWork work;
  work.kind = nameOf(value.at("kind"));
  const auto number = [&](const char *key, int64_t &to) {
    if (const auto found = value.findValue(key))
      to = found->integer(0, kMaxBytes);
  };
  number("weight_bytes", work.weightBytes);
  number("row_bytes", work.tokenBytes);
  number("macs", work.macs);
  number("position_bytes", work.positionBytes);
  number("position_macs", work.positionMacs);
  if (const auto found = value.findValue("output_rows"))
    work.wantedRows = found->boolean();
  return work;
}

std::string ModelInfo::describeContext() const {
  std::string text =
      "the model was compiled for a context of " + std::to_string(context);
  if (maxContext > context)
    text += "; recompile it with qwen-opt --context for up to " +
            std::to_string(maxContext);
  return text;
}

std::string Manifest::weightFormats() const {
  std::string names;
  for (WeightFormat format : kWeightFormats)
    if (std::ranges::any_of(tensors, [&](const TensorInfo &tensor) {
          return tensor.shape.size() == 2 && tensor.format == format;
        }))
      names.append(names.empty() ? "" : "+").append(weightFormatName(format));
  return names;
}

const TargetInfo *Manifest::bestTarget(Arch arch,
                                       CpuFeatureSet features) const {
  for (const TargetInfo &target : targets)
    if (target.arch == arch && features.containsAll(target.features))
      return &target;
  return nullptr;
}

Manifest qwen::parseManifest(std::string_view text, const std::string &file,
                             uint64_t weightBytes) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::exception &) {
    throw Error(file + " is damaged: its manifest is not JSON");
  }
  const JsonSource source = {file + ": in its manifest, ",
                             file + ": its manifest"};
  const JsonValue root(parsed, source);
  Manifest manifest;
  manifest.compiler = nameOf(root.at("compiler"));
  root.at("numerics_version").integer(kNumericsVersion, kNumericsVersion);
  manifest.model = parseModel(root.at("model"));
  for (const JsonValue &value : root.at("targets").elements()) {
    TargetInfo target = parseTarget(value);
    for (const TargetInfo &other : manifest.targets) {
      if (other.arch != target.arch)
        value.at("arch").fail('"' + std::string(archName(other.arch)) + '"');
      if (other.name == target.name)
        value.at("name").fail("another name than that of the targets before");
    }
    manifest.targets.push_back(std::move(target));
  }
  if (manifest.targets.empty())
    root.at("targets").fail("at least one target");
  int64_t most = kMaxBytes;
  for (const JsonValue &value : root.at("caches").elements()) {
    manifest.caches.push_back(parseCache(value, manifest.model, most));
    most -= manifest.caches.back().bytes();
  }
  manifest.kv = parseKv(root.at("kv"), manifest.caches);
  const JsonValue limits = root.at("limits");
  manifest.limits.tokens = limits.at("tokens").integer(1, 1 << 20);
  manifest.limits.rows = limits.at("rows").integer(1, manifest.limits.tokens);
  manifest.arenaBytes = root.at("arena_bytes").integer(0, kMaxBytes);
  const int64_t width = manifest.model.outputWidth();
  manifest.resultStride =
      root.at("output_stride").integer(width, alignTo(width, kPanelOutputs));
  for (const JsonValue &name : root.at("ops").elements())
    manifest.ops.push_back(nameOf(name));
  const JsonValue work = root.at("work");
  for (const JsonValue &of : work.elements())
    manifest.work.push_back(parseWork(of));
  if (manifest.work.size() != manifest.ops.size())
    work.fail("one element for each of the " +
              std::to_string(manifest.ops.size()) + " ops");
  for (const TargetInfo &target : manifest.targets)
    if (!target.opKernels.empty() &&
        target.opKernels.size() != manifest.ops.size())
      root.at("targets").fail("op_kernels with one element for each of the " +
                              std::to_string(manifest.ops.size()) + " ops");
  for (const JsonValue &value : root.at("tensors").elements())
    manifest.tensors.push_back(parseTensor(value, weightBytes));
  const JsonValue generation = root.at("generation");
  parseSampling(generation, manifest.generation);
  parseSpecialTokens(generation, manifest.model.vocabSize, manifest.generation);
  return manifest;
}
