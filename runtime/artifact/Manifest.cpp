//===- Manifest.cpp - Facts of a compiled model ---------------------------===//

#include "artifact/Manifest.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/ABI/Program.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

using namespace qwen;
using nlohmann::json;

static constexpr int64_t kMaxDimension = int64_t{1} << 31;
static constexpr int64_t kMaxBytes = int64_t{1} << 46;

/// A name for commands to print, made safe for terminals.
static std::string nameOf(const JsonValue &value) {
  return printable(value.string());
}

static ModelOutput parseOutput(const JsonValue &model) {
  ModelOutput output;
  if (const auto kind = model.find("output")) {
    const std::optional<OutputKind> parsed = parseOutputKind(kind->string());
    if (!parsed)
      kind->fail("\"logits\", \"scores\", \"drafts\" or \"none\"");
    output.kind = *parsed;
  }
  if (const auto pooling = model.find("pooling"))
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

/// Parses the ids of the logits of a program.
static std::vector<int32_t> parseTokens(const JsonValue &list, int64_t vocab) {
  std::vector<int32_t> tokens;
  int64_t next = 0;
  for (const JsonValue &id : list.elements()) {
    tokens.push_back(static_cast<int32_t>(id.integer(next, vocab - 1)));
    next = tokens.back() + 1;
  }
  if (tokens.empty())
    list.fail("at least one id");
  return tokens;
}

static ProgramModel parseModel(const JsonValue &value) {
  ProgramModel model;
  model.architecture = nameOf(value.at("architecture"));
  for (const Fact<ModelShape> &fact : kShapeFacts)
    value.at(fact.key).read<ModelShape>(fact, model);
  if (model.heads % value.at("kv_heads").integer(1, model.heads) != 0)
    value.at("kv_heads")
        .fail("a divisor of heads, " + std::to_string(model.heads) + ",");
  if (model.heads * model.headDim % kGroup != 0)
    value.at("heads").fail("a number whose product with head_dim " +
                           std::to_string(model.headDim) +
                           " is a multiple of " + std::to_string(kGroup));
  model.maxContext = value.at("max_context").integer(1, kMaxModelPosition);
  visitModelParts([&]<typename Part>(const ModelPart<Part> &part) {
    const auto found = value.find(part.key);
    if (!found)
      return;
    Part &has = (model.*part.member).emplace();
    for (const Fact<Part> &fact : part.facts)
      found->at(fact.key).read(fact, has);
  });
  if (model.experts)
    value.at("experts").at("active").integer(1, model.experts->count);
  if (const auto tokens = value.find("tokens"))
    model.tokens = parseTokens(*tokens, model.vocabSize);
  return model;
}

/// Parses what the file says of the model of `forward` beside its program.
static void parseAnswers(const JsonValue &value, ModelInfo &model) {
  model.name = nameOf(value.at("name"));
  model.tokenizerVocab =
      value.at("tokenizer_vocab").integer(1, model.vocabSize);
  model.context = value.at("context").integer(1, model.maxContext);
  model.output = parseOutput(value);
  model.output.tokens = model.tokens;
  if (model.tokens.empty() == (model.output.kind == OutputKind::Drafts))
    value.at("output").fail(
        "\"drafts\" just where the first program has \"tokens\"");
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
  return target;
}

static WeightFormat parseFormat(const JsonValue &value) {
  const std::optional<WeightFormat> format = parseWeightFormat(value.string());
  if (!format)
    value.fail(weightFormatList());
  return *format;
}

/// Parses one of the caches of a program, which together have up to `most`
/// bytes.
static CacheInfo parseCache(const JsonValue &value, const LimitsInfo &limits,
                            int64_t most) {
  CacheInfo cache;
  cache.name = nameOf(value.at("name"));
  const JsonValue kind = value.at("kind");
  const std::optional<CacheKind> parsed = parseCacheKind(kind.string());
  if (!parsed)
    kind.fail("\"paged\" or \"fixed\"");
  cache.kind = *parsed;
  cache.stepBack = cache.kind == CacheKind::Fixed ? limits.stepBack : 0;
  if (cache.kind == CacheKind::Paged) {
    const JsonValue format = value.at("format");
    cache.format = parseKvFormat(format.string());
    if (!cache.format)
      format.fail(kvFormatList());
  }
  const JsonValue layers = value.at("layers");
  for (const JsonValue &layer : layers.elements()) {
    const int64_t number = layer.integer(0, kMaxModelCount - 1);
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
  value.at("page_tokens").integer(kPageTokens, kPageTokens);
  const int64_t tokenBytes = bytesOf(caches, CacheKind::Paged);
  kv.tokenBytes = value.at("token_bytes").integer(tokenBytes, tokenBytes);
  kv.pageBytes =
      value.at("page_bytes")
          .integer(tokenBytes * kPageTokens, tokenBytes * kPageTokens);
  return kv;
}

static ImageInfo parseImage(const JsonValue &value) {
  return {nameOf(value.at("name")),
          static_cast<uint64_t>(value.at("bytes").integer(0, kMaxBytes))};
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
    tensor.segments.push_back(
        {nameOf(segment.at("name")),
         segment.at("outputs").integer(1, kMaxDimension)});
  if (const auto experts = value.find("experts")) {
    tensor.experts = experts->integer(1, kMaxExperts);
    const auto size = static_cast<int64_t>(tensor.bytes) / tensor.experts;
    tensor.stride = static_cast<uint64_t>(value.at("stride").integer(
        size, tensor.experts == 1
                  ? kMaxBytes
                  : (most - offset - size) / (tensor.experts - 1)));
  }
  return tensor;
}

static OpWork parseWork(const JsonValue &value) {
  OpWork work;
  const JsonValue kind = value.at("kind");
  const std::optional<OpKind> parsed = parseOpKind(kind.string());
  if (!parsed)
    kind.fail("a kind of op that this version knows");
  work.kind = *parsed;
  for (const Fact<OpWork> &fact : kWorkFacts)
    if (const auto found = value.find(fact.key))
      found->read(fact, work);
  const auto calls = value.find("calls");
  for (const JsonValue &of :
       calls ? calls->elements() : std::vector<JsonValue>()) {
    KernelCalls &each = work.calls.emplace_back();
    for (const Fact<KernelCalls> &fact : kCallFacts)
      if (const auto found = of.find(fact.key))
        found->read(fact, each);
  }
  return work;
}

/// Checks that the ops of a program have the kernels that their work names.
static void checkCalls(const JsonValue &work, const ProgramInfo &program) {
  const std::vector<JsonValue> values = work.elements();
  for (const auto &ofTarget : program.kernels)
    for (size_t i = 0; i < values.size(); ++i)
      for (const KernelCalls &calls : program.work[i].calls)
        if (const auto count = std::ssize(ofTarget[i]);
            calls.kernel >= count || calls.gemm >= count)
          values[i].at("calls").fail("the calls of " + std::to_string(count) +
                                     " kernels");
}

/// Parses the arguments or the results of a program with these limits and
/// arena.
static std::vector<ProgramValue> parseValues(const JsonValue &list,
                                             const ProgramInfo &program) {
  std::vector<ProgramValue> values;
  for (const JsonValue &from : list.elements()) {
    ProgramValue &value = values.emplace_back();
    value.name = nameOf(from.at("name"));
    if (isTokenArgument(value.name))
      continue;
    for (const Fact<ProgramValue> &fact : kValueFacts)
      from.at(fact.key).read(fact, value);
    const JsonValue stride = from.at("stride");
    if (value.name == kLogitsName) {
      stride.integer(value.width, alignTo(value.width, kPanelOutputs));
      continue;
    }
    stride.integer(value.width, kMaxDimension);
    if (const auto count = from.find(kCountFact.key)) {
      count->read(kCountFact, value);
      if (program.limits.most(value.count) == 0)
        count->fail("the index of a count that the program has");
    }
    const int64_t floats =
        (program.limits.most(value.count) - 1) * value.stride + value.width;
    value.offset =
        from.at("offset").multiple(4, 0, program.arenaBytes - 4 * floats);
    if (const auto other = from.find("from"))
      value.from = nameOf(*other);
  }
  return values;
}

/// Parses the kernels of the ops of a program, which are so many, for each
/// target.
static std::vector<std::vector<std::vector<size_t>>>
parseKernels(const JsonValue &list, std::span<const TargetInfo> targets,
             size_t ops) {
  std::vector<std::vector<std::vector<size_t>>> kernels(targets.size());
  const std::vector<JsonValue> elements = list.elements();
  if (elements.size() != targets.size())
    list.fail("one element for each of the " + std::to_string(targets.size()) +
              " targets");
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto count = static_cast<int64_t>(targets[i].kernels.size());
    for (const JsonValue &indices : elements[i].elements()) {
      std::vector<size_t> &ofOp = kernels[i].emplace_back();
      for (const JsonValue &index : indices.elements())
        ofOp.push_back(static_cast<size_t>(index.integer(0, count - 1)));
    }
    if (kernels[i].size() != ops)
      elements[i].fail("one element for each of the " + std::to_string(ops) +
                       " ops");
  }
  return kernels;
}

/// Parses a program. Adds its caches to the manifest's, which have up to `most`
/// bytes together.
static ProgramInfo parseProgram(const JsonValue &value, Manifest &manifest,
                                int64_t &most) {
  ProgramInfo program;
  const JsonValue name = value.at("name");
  program.name = nameOf(name);
  for (const ProgramInfo &other : manifest.programs)
    if (other.name == program.name)
      name.fail("another name than that of the programs before");
  program.model = parseModel(value.at("model"));
  const JsonValue limits = value.at("limits");
  program.limits.tokens = limits.at("tokens").integer(1, kMostTokens);
  const auto rows = limits.find("rows");
  program.limits.rows = rows ? rows->integer(1, program.limits.tokens) : 0;
  if (const auto stepBack = limits.find("step_back"))
    program.limits.stepBack = stepBack->integer(0, kMostStepBack);
  const auto stateRows = limits.find("state_rows");
  if (program.limits.stepBack > 0 && !(stateRows && stateRows->boolean()))
    limits.at("step_back")
        .fail("0, or state_rows beside it (compile the model again),");
  if (const auto counts = limits.find("counts")) {
    for (const JsonValue &count : counts->elements())
      program.limits.counts.push_back(
          {nameOf(count.at("name")), count.at("most").integer(1, kMostTokens)});
    if (std::ssize(program.limits.counts) > kMostCounts - kFirstOwnCount)
      counts->fail("up to " + std::to_string(kMostCounts - kFirstOwnCount) +
                   " counts");
  }
  program.arenaBytes = value.at("arena_bytes").integer(0, kMaxBytes);
  for (const JsonValue &cache : value.at("caches").elements()) {
    program.caches.push_back(parseCache(cache, program.limits, most));
    most -= program.caches.back().bytes();
    mergeCache(manifest.caches, program.caches.back());
  }
  program.inputs = parseValues(value.at("inputs"), program);
  program.outputs = parseValues(value.at("outputs"), program);
  if (program.logits())
    (void)limits.at("rows");
  for (const JsonValue &op : value.at("ops").elements())
    program.ops.push_back(nameOf(op));
  const JsonValue work = value.at("work");
  for (const JsonValue &of : work.elements())
    program.work.push_back(parseWork(of));
  if (program.work.size() != program.ops.size())
    work.fail("one element for each of the " +
              std::to_string(program.ops.size()) + " ops");
  program.kernels =
      parseKernels(value.at("kernels"), manifest.targets, program.ops.size());
  checkCalls(work, program);
  return program;
}

static Pruning parsePruning(const JsonValue &value) {
  Pruning pruning = {.method = nameOf(value.at("method"))};
  for (const JsonValue &layer : value.at("layers").elements())
    pruning.layers.push_back(layer.integer(0, INT32_MAX));
  return pruning;
}

static Quantization parseQuantization(const JsonValue &value) {
  Quantization quantization;
  quantization.quantizer = nameOf(value.at("quantizer"));
  for (const Fact<Quantization> &fact : kQuantizationFacts)
    value.at(fact.key).read(fact, quantization);
  quantization.text = nameOf(value.at("text"));
  if (const auto distilled = value.find("distilled"))
    for (const Fact<DistilledScales> &fact : kDistilledFacts)
      distilled->at(fact.key).read(fact, quantization.distilled);
  return quantization;
}

std::string ModelInfo::describeContext() const {
  std::string text =
      "the model was compiled for a context of " + std::to_string(context);
  if (maxContext > context)
    text += "; recompile it with qwen-opt --context for up to " +
            std::to_string(maxContext);
  return text;
}

void ModelInfo::requireToken(int32_t id) const {
  if (!hasToken(id))
    throw Error("token id " + std::to_string(id) +
                    " is not in the model's vocabulary of " +
                    std::to_string(vocabSize),
                ErrorKind::InvalidToken);
}

void ModelInfo::requirePrompt(std::span<const int32_t> ids,
                              const std::string &what) const {
  if (ids.empty())
    throw Error(what + " is empty: at least one token is needed");
  if (std::ssize(ids) > context)
    throw Error(what + " has " + std::to_string(ids.size()) + " tokens when " +
                    describeContext(),
                ErrorKind::PastContext);
  for (int32_t id : ids)
    requireToken(id);
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

const ProgramInfo *Manifest::draftHead() const {
  const auto found =
      std::ranges::find(programs, kDraftHeadName, &ProgramInfo::name);
  return found == programs.end() ? nullptr : &*found;
}

static bool isOfDraftHead(const TensorInfo &tensor) {
  return tensor.name.starts_with(kDraftHeadTensors);
}

uint64_t Manifest::draftHeadBytes() const {
  uint64_t bytes = 0;
  for (const TensorInfo &tensor : tensors)
    if (isOfDraftHead(tensor))
      bytes += tensor.bytes;
  return bytes;
}

uint64_t Manifest::tokenWeightBytes() const {
  uint64_t bytes = 0;
  for (const TensorInfo &tensor : tensors) {
    if (isOfDraftHead(tensor))
      continue;
    if (model.experts && tensor.experts == model.experts->count)
      bytes += tensor.bytes / static_cast<uint64_t>(model.experts->count) *
               static_cast<uint64_t>(model.experts->active);
    else if (model.tied || !tensor.name.starts_with("model.embed_tokens."))
      bytes += tensor.bytes;
  }
  return bytes;
}

const TargetInfo *Manifest::bestTarget(Arch arch,
                                       CpuFeatureSet features) const {
  for (const TargetInfo &target : targets)
    if (target.runsOn(arch, features))
      return &target;
  return nullptr;
}

/// Parses what a manifest says of code: targets, KV cache, images and programs.
static void parseCode(const JsonValue &root, Manifest &manifest) {
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
  const JsonValue programs = root.at("programs");
  for (const JsonValue &value : programs.elements())
    manifest.programs.push_back(parseProgram(value, manifest, most));
  if (manifest.programs.empty())
    programs.fail("at least one program");
  static_cast<ProgramModel &>(manifest.model) = manifest.forward().model;
  manifest.kv = parseKv(root.at("kv"), manifest.caches);
  if (const auto images = root.find("images"))
    for (const JsonValue &value : images->elements())
      manifest.images.push_back(parseImage(value));
}

/// Checks that the model and its draft head have the logits that the manifest
/// says.
static void checkLogits(const JsonValue &programs, const Manifest &manifest) {
  const ModelInfo &model = manifest.model;
  const auto check = [&](const ProgramInfo &program, int64_t width) {
    const ProgramValue *logits = program.logits();
    if (!logits || logits->width != width)
      programs.fail("logits of " + std::to_string(width) +
                    " values as an output of \"" + program.name + "\"");
    const std::vector<int32_t> &tokens = program.model.tokens;
    if (!tokens.empty() && tokens.back() >= model.tokenizerVocab)
      programs.fail("ids below " + std::to_string(model.tokenizerVocab) +
                    " as the tokens of \"" + program.name + "\"");
  };
  check(manifest.forward(), model.outputWidth());
  if (const ProgramInfo *head = manifest.draftHead())
    check(*head, head->model.tokens.empty() ? model.vocabSize
                                            : std::ssize(head->model.tokens));
}

/// Calls `parse` with the root of a manifest.
template <typename ParseFn>
static Manifest parseWith(std::string_view text, const std::string &file,
                          const ParseFn &parse) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::exception &) {
    throw Error(file + " is damaged: its manifest is not JSON");
  }
  JsonReads read;
  const JsonSource source = {part::file(file) + ": in its manifest, ",
                             part::file(file) + ": its manifest", &read};
  const JsonValue root(parsed, source);
  Manifest manifest;
  parse(root, manifest);
  if (const auto unread = root.unread(); !unread.empty())
    unread.front().second.error(
        "is no key of this version; run the model with the version that "
        "compiled it, or compile it again");
  return manifest;
}

Manifest qwen::parsePrograms(std::string_view text, const std::string &file) {
  return parseWith(text, file, parseCode);
}

Manifest qwen::parseManifest(std::string_view text, const std::string &file,
                             uint64_t weightBytes) {
  return parseWith(text, file, [&](const JsonValue &root, Manifest &manifest) {
    manifest.compiler = nameOf(root.at("compiler"));
    root.at("numerics_version").integer(kNumericsVersion, kNumericsVersion);
    parseCode(root, manifest);
    parseAnswers(root.at("model"), manifest.model);
    checkLogits(root.at("programs"), manifest);
    for (const JsonValue &value : root.at("tensors").elements())
      manifest.tensors.push_back(parseTensor(value, weightBytes));
    const JsonValue generation = root.at("generation");
    for (const Fact<GenerationConfig> &fact : kSamplingFacts)
      generation.at(fact.key).read(fact, manifest.generation);
    generation.at("eos_token_id").elements();
    parseSpecialTokens(generation, manifest.model.vocabSize,
                       manifest.generation);
    if (const auto value = root.find("pruning"))
      manifest.pruning = parsePruning(*value);
    if (const auto value = root.find("quantization"))
      manifest.quantization = parseQuantization(*value);
  });
}
