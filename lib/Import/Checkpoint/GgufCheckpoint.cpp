//===- GgufCheckpoint.cpp - A model in GGUF files -------------------------===//

#include "GgufCheckpoint.h"

#include "ModelReader.h"
#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"
#include "qwen/Import/Checkpoint/Known.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/ABI/Program.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"
#include "qwen/Weights/Forms.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

using namespace qwen;
using nlohmann::json;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// The name of q, k and v in one tensor.
static constexpr std::string_view kFused = "attn_qkv";
/// The end of the name that the model gives the router of a shared expert.
static constexpr std::string_view kSharedGate = ".shared_expert_gate.weight";

/// The number of dimensions of the tensor that the model calls `name`: 1 for a
/// vector, 2 for a matrix, 3 for the matrices of all experts.
static size_t rankOf(std::string_view name) {
  for (std::string_view vector : {"norm.weight", ".bias", ".A_log", ".dt_bias"})
    if (name.ends_with(vector))
      return 1;
  return name.find(".experts.") == name.npos ? 2 : 3;
}

/// The number of the layer that the tensor `name` of a file belongs to, or
/// nullopt.
static std::optional<int64_t> layerOf(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  int64_t layer = 0;
  const char *end = name.data() + name.size();
  if (!name.starts_with(kLayer))
    return std::nullopt;
  const auto [dot, error] =
      std::from_chars(name.data() + kLayer.size(), end, layer);
  if (error != std::errc() || dot == end || *dot != '.' || layer < 0)
    return std::nullopt;
  return layer;
}

namespace {
/// The layers that have tensors in files, by number.
struct FileLayers {
  explicit FileLayers(std::span<const StoredTensor> tensors) {
    for (const StoredTensor &tensor : tensors)
      if (const auto layer = layerOf(tensor.name)) {
        all.insert(*layer);
        if (tensor.name.find(".nextn.") != tensor.name.npos)
          drafts.insert(*layer);
      }
  }

  /// The name of a tensor in the model. Nobody knows what tensors that have the
  /// names of a folder's head hold.
  std::string nameOf(const StoredTensor &tensor,
                     Architecture architecture) const {
    const auto layer = layerOf(tensor.name);
    if (layer && drafts.contains(*layer))
      return ggufDraftName(architecture, tensor.name, *layer - *drafts.begin());
    if (tensor.name.starts_with(kDraftHeadTensors))
      return std::string(kDraftHeadTensors) + tensor.name;
    return ggufModelName(architecture, tensor.name);
  }

  std::set<int64_t> all;
  /// The layers of draft heads.
  std::set<int64_t> drafts;
};
} // namespace

/// Adds q, k and v of tensors that hold all three.
static void divideProjections(const ModelConfig &model,
                              WeightSources &sources) {
  static constexpr std::string_view kProjections[] = {"attn_q", "attn_k",
                                                      "attn_v"};
  const int64_t keys = model.kvHeads * model.headDim;
  const int64_t outputs[] = {model.heads * model.headDim, keys, keys};
  for (const auto &[own, fused] : sources.all()) {
    const size_t at = own.find(kFused);
    if (at == own.npos || !layerOf(own))
      continue;
    std::array<NamedOutputs, 3> parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      std::string name = own;
      name.replace(at, kFused.size(), kProjections[i]);
      parts[i] = {ggufModelName(model.architecture, name), outputs[i]};
    }
    addProjections(sources, fused, parts);
  }
}

/// llama.cpp stores -exp(A_log).
static constexpr NamedMap kGgufMaps[] = {
    {".linear_attn.A_log", ValueMap::Negate}};

//===----------------------------------------------------------------------===//
// Configuration
//===----------------------------------------------------------------------===//

namespace {
/// The keys of the first file.
class ConfigReader {
public:
  ConfigReader(const GgufFile &gguf, const std::string &path)
      : path(path), source{path + ": ", path, &read}, all(gguf.values),
        root(all, source) {
    readArchitecture();
    for (const auto &[key, array] : gguf.arrays)
      readNumberOfLayers(gguf, key);
  }

  /// Reads all but what the tensors say: vocabSize, tied and layerKinds.
  ModelConfig readModel(const FileLayers &layers);
  /// Reads the sizes of linear attention, which layers with its tensors have.
  void readLayerKinds(const StoredTensors &tensors, ModelConfig &model);
  /// Adds a note about keys that nobody read.
  void noteUnknown(ModelConfig &model) {
    const std::string_view name = infoOf(architecture).ggufName;
    noteUnusedKeys("unknown keys", unknownKeys(root, knownGgufKeys(name)),
                   model);
  }
  GenerationConfig readGeneration(const GgufFile &gguf, ModelConfig &model);
  /// Reads what the outputs of `scores`, which errors call `name`, stand for.
  void readLabels(const GgufFile &gguf, const StoredTensor &scores,
                  const ErrorText &name, ModelConfig &model);

private:
  /// Keys of the architecture, such as "block_count".
  JsonValue at(const std::string &key) { return root.at(nameOf(key).c_str()); }
  std::optional<JsonValue> find(const std::string &key) {
    return root.findValue(nameOf(key).c_str());
  }
  std::string nameOf(const std::string &key) const {
    return std::string(infoOf(architecture).ggufName) + "." + key;
  }

  void readArchitecture();
  void readNumberOfLayers(const GgufFile &gguf, const std::string &key);
  void readModelSizes(ModelConfig &model);
  /// Rejects another value of the key `key`, if it is there.
  void requireFlag(const char *key, bool needed);
  ExpertsShape readExperts(const ModelConfig &model);
  void readRope(ModelConfig &model);
  void readYarn(ModelConfig &model);
  LinearAttention readLinear(const ModelConfig &model);
  int64_t readLayers(const FileLayers &layers);
  void readPooling(ModelConfig &model);

  const std::string &path;
  JsonReads read;
  const JsonSource source;
  /// All keys of the file.
  json all;
  const JsonValue root;
  Architecture architecture = {};
  /// The layers that have no heads of attention.
  std::set<int64_t> withoutHeads;
};
} // namespace

void ConfigReader::readArchitecture() {
  if (const auto type = root.findValue(kGgufModelType);
      type && type->string() != "model")
    type->refuse("supported is \"model\", the file of a whole model; --lora "
                 "takes an adapter");
  const JsonValue name = root.at(kGgufArchitecture);
  for (const ArchitectureInfo &info : kArchitectures)
    if (!info.ggufName.empty() && name.string() == info.ggufName) {
      architecture = static_cast<Architecture>(&info - kArchitectures);
      return;
    }
  name.refuse(supportedArchitectures(&ArchitectureInfo::ggufName));
}

/// Where the array `key` has a number for each layer and all are equal, makes
/// it that number. Layers of linear attention have 0 heads in some files.
void ConfigReader::readNumberOfLayers(const GgufFile &gguf,
                                      const std::string &key) {
  const auto blocks = find(kGgufLayers);
  const GgufArray &array = gguf.arrays.at(key);
  if (!blocks || !blocks->is(array.count) || array.type == GgufType::String ||
      !key.starts_with(nameOf("")))
    return;
  const bool mayHaveNone =
      layersOf(architecture).hasLinear && key.starts_with(nameOf(kGgufHeads));
  std::set<int64_t> none;
  std::optional<json> number;
  const std::vector<json> numbers = ggufNumbers(gguf, path, key.c_str());
  for (size_t layer = 0; layer < numbers.size(); ++layer) {
    if (mayHaveNone && numbers[layer] == 0)
      none.insert(static_cast<int64_t>(layer));
    else if (number.value_or(numbers[layer]) != numbers[layer])
      return;
    else
      number = numbers[layer];
  }
  if (!number)
    return;
  all[key] = *number;
  withoutHeads.merge(none);
}

/// Reads YaRN's parameters, by the names and rules of llama.cpp.
void ConfigReader::readYarn(ModelConfig &model) {
  const auto number = [&](const std::string &key, double least, double most,
                          double other) {
    const auto found = find(key);
    return found ? found->number(least, most) : other;
  };
  for (const auto &[key, value] :
       {std::pair("rope.scaling.yarn_log_multiplier", 0.0),
        std::pair("rope.scaling.yarn_ext_factor", 1.0)})
    if (number(key, -1e6, 1e6, value) != value)
      at(key).refuse("supported is " + std::to_string(static_cast<int>(value)));
  Yarn yarn;
  yarn.factor = at(kGgufYarnFactor).number(1, 1e6);
  const auto positions = find(kGgufYarnPositions);
  yarn.positions =
      positions ? positions->integer(1, kMaxModelPosition) : model.maxPosition;
  yarn.slow = number(kGgufYarnSlow, 1e-6, 1e6, yarn.slow);
  yarn.fast = number(kGgufYarnFast, yarn.slow, 1e6, yarn.fast);
  yarn.scale = numerics::yarnAttentionFactor(yarn.factor);
  for (const char *key : kGgufYarnScales)
    yarn.scale *= number(key, 1e-6, 1e6, 1);
  setYarn(model, yarn);
}

/// Reads the rotary embedding. Kernels rotate multiples of 8 values.
void ConfigReader::readRope(ModelConfig &model) {
  model.ropeTheta = at(kGgufRopeTheta).number(1e-30, 1e30);
  model.rotatedDim = model.headDim;
  if (const auto rotated = find("rope.dimension_count")) {
    model.rotatedDim = rotated->integer(0, INT32_MAX);
    if (layersOf(architecture).rotatesPart)
      rotated->multiple(8, 8, model.headDim);
    else if (model.rotatedDim != model.headDim)
      rotated->refuse("supported are all " + std::to_string(model.headDim) +
                      " values of a head");
  }
  const auto type = find(kGgufRopeScaling);
  if (type && type->string() == kGgufYarn)
    return readYarn(model);
  if (type && type->string() != "none")
    type->refuse("supported are \"none\" and \"yarn\"");
  // The type says that nothing is scaled, whatever the factor.
  if (type)
    find(kGgufYarnFactor);
}

LinearAttention ConfigReader::readLinear(const ModelConfig &model) {
  at("ssm.conv_kernel").integer(kConvolutionTaps, kConvolutionTaps);
  const JsonValue heads = at("ssm.time_step_rank");
  LinearAttention linear = {};
  linear.keyHeads = at("ssm.group_count").integer(1, kMaxModelCount);
  linear.keyDim = at("ssm.state_size").multiple(kGroup, kGroup, 256);
  linear.valueHeads = heads.integer(1, kMaxModelCount);
  if (linear.valueHeads % linear.keyHeads != 0)
    heads.fail("a multiple of ssm.group_count, " +
               std::to_string(linear.keyHeads) + ",");
  const JsonValue values = at("ssm.inner_size");
  linear.valueDim = values.integer(1, kMaxModelWidth) / linear.valueHeads;
  values.multiple(kGroup * linear.valueHeads, kGroup * linear.valueHeads,
                  256 * linear.valueHeads);
  if (model.headDim % kGroup != 0)
    at(kGgufKeyDim).fail("a multiple of " + std::to_string(kGroup));
  return linear;
}

/// Reads the sizes. Where all layers have experts, other networks need no
/// width.
void ConfigReader::readModelSizes(ModelConfig &model) {
  const auto sizeAt = [&](const SizeKey &key) {
    const bool isExpertWidth = key.size == &ModelShape::intermediateSize &&
                               layersOf(architecture).hasExperts &&
                               !find(key.key);
    return at(isExpertWidth ? kGgufExpertWidth : key.key);
  };
  readSizes(kGgufSizes, sizeAt, model);
}

void ConfigReader::requireFlag(const char *key, bool needed) {
  if (const auto found = find(key); found && found->boolean() != needed)
    found->refuse(needed ? "supported is true" : "supported is false");
}

/// Reads the sizes of experts. Without widths of their own, the experts of a
/// token share the width of another network, and a shared expert has that
/// width, as in llama.cpp.
ExpertsShape ConfigReader::readExperts(const ModelConfig &model) {
  const LayerTraits &layers = layersOf(architecture);
  ExpertsShape experts = {};
  experts.count = at(kGgufExpertCount).integer(1, kMaxExperts);
  experts.active = at(kGgufActiveExperts).integer(1, experts.count);
  const auto width = find(kGgufExpertWidth);
  const int64_t parts = width ? 1 : experts.active;
  experts.width =
      (width ? *width : at(kGgufMlpWidth))
          .multiple(kGroup * parts, kGroup * parts, kMaxModelWidth) /
      parts;
  if (layers.hasSharedExpert) {
    const auto shared = find(kGgufSharedWidth);
    experts.sharedWidth = shared
                              ? shared->multiple(kGroup, kGroup, kMaxModelWidth)
                              : model.intermediateSize;
  }
  experts.normalized = layers.normalizesGgufExperts;
  // The second is Ollama's.
  for (const char *key : {"expert_weights_norm", "norm_top_k_prob"})
    requireFlag(key, experts.normalized);
  return experts;
}

void ConfigReader::readLayerKinds(const StoredTensors &tensors,
                                  ModelConfig &model) {
  model.layerKinds.resize(static_cast<size_t>(model.layers));
  if (!layersOf(architecture).hasLinear)
    return;
  const LinearAttention linear = readLinear(model);
  for (int64_t layer = 0; layer < model.layers; ++layer)
    if (tensors.find(ModelScope().layer(layer) + "linear_attn.out_proj.weight"))
      model.layerKinds[static_cast<size_t>(layer)] = linear;
    else if (withoutHeads.contains(layer))
      at(kGgufKvHeads)
          .error("is 0 for layer " + part::found(std::to_string(layer)) +
                 ", which has no tensors of linear attention");
}

/// Reads the number of the model's layers. Draft layers have the last numbers.
/// block_count may count them or not, and the file may have none of their
/// tensors.
int64_t ConfigReader::readLayers(const FileLayers &layers) {
  const JsonValue blocks = at(kGgufLayers);
  int64_t count = blocks.integer(1, kMaxModelCount);
  const auto declared = find("nextn_predict_layers");
  int64_t absent = declared ? declared->integer(0, kMaxModelCount) : 0;
  absent -= std::ssize(layers.drafts);
  const auto has = [&](const std::set<int64_t> &set) {
    return set.contains(count - 1);
  };
  for (; has(layers.drafts) || (absent > 0 && !has(layers.all)); --count)
    absent -= has(layers.drafts) ? 0 : 1;
  if (count < 1)
    blocks.fail("more than the number of draft layers");
  if (!layers.drafts.empty() && *layers.drafts.begin() < count)
    throw Error(
        part::file(path) + ": " +
        part::subject("layer " + std::to_string(*layers.drafts.begin())) +
        " is a draft layer, which has nextn tensors, before layer " +
        std::to_string(count - 1) + " of the model");
  return count;
}

/// Reads the pooling, which the files have as a number of llama.cpp.
void ConfigReader::readPooling(ModelConfig &model) {
  if (const auto type = find(kGgufPooling))
    model.output.pooling = kGgufPoolings[static_cast<size_t>(
        type->integer(0, std::ssize(kGgufPoolings) - 1))];
}

void ConfigReader::readLabels(const GgufFile &gguf, const StoredTensor &scores,
                              const ErrorText &name, ModelConfig &model) {
  const std::string key = nameOf(kGgufLabels);
  std::vector<std::string> &labels = model.output.labels;
  std::string list;
  for (std::string_view label : ggufStrings(gguf, path, key.c_str())) {
    labels.emplace_back(label);
    list += (list.empty() ? "" : ", ") + quote(label);
  }
  if (!areSupported(labels))
    throw Error(part::file(path) + ": " + part::subject(key) + " is " +
                part::found("[" + list + "]") + "; supported are " +
                part::needed("\"yes\" and \"no\"") + ", in any order");
  if (scores.shape.size() != 2 || scores.shape.front() != std::ssize(labels))
    throw Error(
        name + " has " +
        part::found(scores.shape.size() == 2 ? scores.shape.front() : 1) +
        " outputs when " + part::needed("one for each label of " + key) +
        " is needed");
  model.output.kind = OutputKind::Scores;
}

ModelConfig ConfigReader::readModel(const FileLayers &layers) {
  ModelConfig model = {};
  model.architecture = architecture;
  model.isGguf = true;
  // llama.cpp keeps the order of a model whose projections are joined.
  model.interleavesValueHeads = layersOf(architecture).hasLinear &&
                                !layersOf(architecture).joinsProjections;
  // Ollama's key.
  if (layersOf(architecture).hasLinear)
    requireFlag("ssm.v_head_reordered", model.interleavesValueHeads);
  readModelSizes(model);
  model.layers = readLayers(layers);
  if (layersOf(architecture).hasExperts)
    model.experts = readExperts(model);
  model.setMlpKinds(
      std::vector(static_cast<size_t>(model.layers),
                  model.experts ? MlpKind::Experts : MlpKind::Dense));
  const JsonValue heads = at(kGgufHeads);
  if (model.heads % model.kvHeads != 0)
    heads.fail("a multiple of attention.head_count_kv, " +
               std::to_string(model.kvHeads) + ",");
  model.maxPosition = at(kGgufContext).integer(1, kMaxModelPosition);
  if (const auto keys = find(kGgufKeyDim))
    model.headDim = keys->integer(1, kMaxModelCount);
  else if (model.hiddenSize % model.heads == 0)
    model.headDim = model.hiddenSize / model.heads;
  else
    heads.fail("a divisor of embedding_length, " +
               std::to_string(model.hiddenSize) + ",");
  if (const auto values = find(kGgufValueDim);
      values && values->integer(1, kMaxModelCount) != model.headDim)
    values->fail(std::to_string(model.headDim) + ", as in key_length,");
  checkSizes(path, model);
  readRope(model);
  model.rmsNormEps = at(kGgufEpsilon).number(1e-30, 1);
  readPooling(model);
  return model;
}

GenerationConfig ConfigReader::readGeneration(const GgufFile &gguf,
                                              ModelConfig &model) {
  const int64_t vocabSize = model.vocabSize;
  std::set<std::string> beyond;
  GenerationConfig generation;
  for (const auto &[fact, draws] : kGgufSampling)
    if (const auto found = root.findValue(fact.key)) {
      found->read(fact, generation);
      generation.doSample |= draws;
    }
  generation.doSample &= generation.temperature > 0;

  const auto addEnd = [&](int64_t id) {
    if (std::ranges::find(generation.eosTokenIds, id) ==
        generation.eosTokenIds.end())
      generation.eosTokenIds.push_back(static_cast<int32_t>(id));
  };
  for (const char *key : {kGgufEosToken, kGgufEotToken})
    if (const auto value = root.findValue(key))
      if (const auto id = parseSpecialToken(*value, vocabSize, &beyond))
        addEnd(*id);
  if (gguf.arrays.contains(kGgufTokens)) {
    const auto tokens = ggufStrings(gguf, path, kGgufTokens);
    for (std::string_view name : kGgufEndTokens)
      if (const auto found = std::ranges::find(tokens, name);
          found != tokens.end() && found - tokens.begin() < vocabSize)
        addEnd(found - tokens.begin());
  }
  if (const auto bos = root.findValue(kGgufBosToken))
    generation.bosTokenId = parseSpecialToken(*bos, vocabSize, &beyond);
  noteUnusedKeys("tokens beyond the vocabulary", {beyond.begin(), beyond.end()},
                 model);
  return generation;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

namespace {
class GgufCheckpoint final : public Checkpoint {
public:
  GgufCheckpoint(fs::path path, ModelConfig model, GenerationConfig sampling,
                 StoredTensors stored, WeightSources sources, GgufFile gguf,
                 const AdaptFn &adapt, std::span<const ScopedModel> scopes)
      : Checkpoint(std::move(path), std::move(model), std::move(sampling),
                   std::move(stored), std::move(sources), scopes),
        gguf(std::move(gguf)) {
    adaptWeights(adapt);
    divideScopes();
  }

  std::string ownName(std::string_view name) const override {
    return ggufOwnName(config().architecture, name);
  }

  std::optional<CheckpointTokenizer> readTokenizer() const override {
    return readGgufTokenizer(gguf, path());
  }

private:
  /// The first file, with all keys.
  const GgufFile gguf;
};
} // namespace

std::unique_ptr<Checkpoint>
qwen::openGguf(const fs::path &path, const AdaptFn &adapt,
               std::span<const ScopedModel> scopes) {
  const std::string where = path.string(), file = path.filename().string();
  StoredTensors tensors(path.parent_path());
  GgufFile gguf = parseGguf(tensors.map(file), where);
  addSplitFiles(tensors, file, gguf);

  ConfigReader reader(gguf, where);
  const FileLayers layers(gguf.tensors);
  ModelConfig model = reader.readModel(layers);
  for (StoredTensor &tensor : gguf.tensors) {
    const std::string name = layers.nameOf(tensor, model.architecture);
    for (std::string_view own :
         {".nextn.embed_tokens.", ".nextn.shared_head_head."})
      model.hasOwnDraftEmbedding |= tensor.name.find(own) != tensor.name.npos;
    dropOnes(tensor, rankOf(name));
    // Most files do not count the one output of this matrix.
    if (name.ends_with(kSharedGate) && tensor.shape.size() == 1)
      tensor.shape.insert(tensor.shape.begin(), 1);
    if (!tensors.add(name, tensor))
      throw Error(describeTensor(tensor) + " is there twice");
  }
  gguf.tensors.clear();
  reader.readLayerKinds(tensors, model);

  const StoredTensor *embedding = tensors.find("model.embed_tokens.weight");
  if (!embedding)
    throw Error(part::file(where) + " has no " +
                part::tensor("token_embd.weight"));
  model.vocabSize = embedding->shape.front();
  if (model.vocabSize > INT32_MAX)
    throw Error(describeTensor(*embedding) + " has " +
                part::found(model.vocabSize) + " outputs");
  const StoredTensor *head = tensors.find("lm_head.weight");
  const StoredTensor *scores = tensors.find("score.weight");
  if (head && scores)
    throw Error(describeTensor(*scores) + " is a head beside " +
                quote(head->name) + ", and a model has one");
  model.tied = !head && !scores;
  if (scores)
    reader.readLabels(gguf, *scores, describeTensor(*scores), model);
  GenerationConfig generation = reader.readGeneration(gguf, model);
  reader.noteUnknown(model);
  WeightSources sources = makeSources(tensors.tensors());
  if (layersOf(model.architecture).hasLinear)
    mapValues(sources, kGgufMaps);
  else
    divideProjections(model, sources);
  return std::make_unique<GgufCheckpoint>(
      path, model, std::move(generation), std::move(tensors),
      std::move(sources), std::move(gguf), adapt, scopes);
}
