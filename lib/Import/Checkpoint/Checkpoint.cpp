//===- Checkpoint.cpp - Folders and files of checkpoints ------------------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "CheckpointFile.h"
#include "GgufCheckpoint.h"
#include "QuantizationConfig.h"
#include "Qwen1.h"

#include "qwen/Import/Checkpoint/Config.h"
#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Import/Checkpoint/Pooling.h"
#include "qwen/Import/Checkpoint/Safetensors.h"

#include "qwen/Support/InputError.h"
#include "qwen/Support/SplitName.h"
#include "qwen/Support/Text.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>

using namespace qwen;
namespace fs = std::filesystem;

Checkpoint::Checkpoint(fs::path path, ModelConfig config,
                       GenerationConfig generation, StoredTensors tensors,
                       WeightSources weights,
                       std::span<const ScopedModel> scopes)
    : where(std::move(path)), model(std::move(config)),
      sampling(std::move(generation)), stored(std::move(tensors)),
      sources(std::move(weights)), scopes(scopes.begin(), scopes.end()) {
  settleOutput();
  noteOutput();
}

std::optional<ModelConfig> qwen::textConfig(const Checkpoint &checkpoint) {
  return checkpoint.config();
}

std::optional<ModelConfig> Checkpoint::configOf(const ModelScope &scope) const {
  const auto found = std::ranges::find(scopes, scope, &ScopedModel::scope);
  return found == scopes.end() ? std::nullopt : found->config(*this);
}

const WeightSources::Entry &Checkpoint::weight(const std::string &name,
                                               const WeightShape &shape) const {
  const std::vector<int64_t> needed = ownShape(name, shape).sizes;
  const WeightSources::Entry *entry = sources.find(name);
  const StoredTensor *tensor = stored.find(name);
  if (!entry && !tensor)
    throw Error(part::file(where.string()) + " has no " +
                part::tensor(ownName(name)) +
                ", which its configuration demands with shape " +
                part::needed(shapeText(needed)));
  const ErrorText what =
      entry ? entry->source->name() : describeTensor(*tensor);
  const std::vector<int64_t> &found =
      entry ? entry->source->shape().sizes : tensor->shape;
  if (found != needed)
    throw Error(what + " has shape " + part::found(shapeText(found)) +
                " when " + part::needed(shapeText(needed)) + " is needed");
  if (!entry)
    throw Error(what + " has dtype " + part::found(tensor->typeName) +
                " when " + part::needed("F32, F16 or BF16") + " is needed");
  return *entry;
}

void Checkpoint::adaptWeights(const AdaptFn &adapt) {
  if (!adapt)
    return;
  const auto sourceOf = [&](std::string_view name) {
    const WeightSources::Entry *entry = sources.find(name);
    return entry ? entry->source : nullptr;
  };
  const WeightSourcePtr head = sourceOf("lm_head.weight");
  const WeightSourcePtr embedding = sourceOf("model.embed_tokens.weight");
  adapt(model, sources);
  if (!model.tied)
    return;
  if (sourceOf("lm_head.weight") == head) {
    if (sourceOf("model.embed_tokens.weight") != embedding)
      throw Error(embedding->name() +
                  " is the lm_head of a tied model, too; an adapter that "
                  "changes it is not supported unless it changes " +
                  part::needed("lm_head") + " as well");
    return;
  }
  model.tied = false;
  model.notes.emplace_back(
      "an adapter changes lm_head, so the model is not tied");
}

void Checkpoint::divideScopes() {
  for (const ScopedModel &each : scopes)
    if (const auto config = each.config(*this))
      each.divide(*this, each.scope, *config);
}

bool Checkpoint::hasSameTensors(std::string_view one,
                                std::string_view other) const {
  const WeightSources::Entry *a = sources.find(one), *b = sources.find(other);
  return a && b &&
         std::ranges::equal(
             a->tensors, b->tensors,
             [&](const std::string &left, const std::string &right) {
               const StoredTensor *x = stored.find(left);
               const StoredTensor *y = stored.find(right);
               return x->typeName == y->typeName && x->shape == y->shape &&
                      std::ranges::equal(x->bytes, y->bytes);
             });
}

void Checkpoint::settleOutput() {
  if (model.output.kind == OutputKind::Scores)
    return;
  if (!stored.find("lm_head.weight") && !sources.find("lm_head.weight")) {
    if (!model.tied)
      model.output.kind = OutputKind::None;
    return;
  }
  const bool isSame =
      hasSameTensors("lm_head.weight", "model.embed_tokens.weight");
  if (model.tied && !isSame)
    model.notes.emplace_back(
        "lm_head.weight is not the embedding, so the model "
        "is not tied, although tie_word_embeddings is true");
  model.tied = isSame;
}

void Checkpoint::noteOutput() {
  const auto &[kind, labels, tokens, pooling] = model.output;
  if (kind == OutputKind::None)
    model.notes.emplace_back(
        "no logits: the checkpoint has no lm_head.weight and "
        "does not tie it to the embedding; the model is for "
        "qwen-run embed and /v1/embeddings alone");
  if (kind == OutputKind::Scores)
    model.notes.push_back("no logits, but scores of " + labels[0] + " and " +
                          labels[1] +
                          "; the model is for qwen-run rerank and /v1/rerank");
  if (pooling != kLastPooling)
    model.notes.push_back(
        "the pooling is " + printable(pooling) + ", not " +
        std::string(kLastPooling) +
        ": qwen-run embed and /v1/embeddings refuse the model");
  if (model.hasOwnDraftEmbedding)
    model.notes.emplace_back(
        "the draft head is not used: it has an embedding of its own");
}

/// Hybrids norm by 1 + w and have rates exp(A_log).
static constexpr NamedMap kRateMaps[] = {
    {".linear_attn.A_log", ValueMap::Exp},
};
static constexpr NamedMap kNormMaps[] = {
    {"model.norm.weight", ValueMap::PlusOne},
    {".input_layernorm.weight", ValueMap::PlusOne},
    {".post_attention_layernorm.weight", ValueMap::PlusOne},
    {".q_norm.weight", ValueMap::PlusOne},
    {".k_norm.weight", ValueMap::PlusOne},
    {"mtp.norm.weight", ValueMap::PlusOne},
    {".pre_fc_norm_embedding.weight", ValueMap::PlusOne},
    {".pre_fc_norm_hidden.weight", ValueMap::PlusOne},
};
static constexpr std::string_view kConvolution = ".linear_attn.conv1d.weight";

namespace {
/// A Hugging Face folder.
class FolderCheckpoint final : public Checkpoint {
public:
  FolderCheckpoint(const fs::path &dir, const ModelConfig &model,
                   GenerationConfig sampling, StoredTensors tensors,
                   WeightSources sources, const AdaptFn &adapt,
                   std::span<const ScopedModel> scopes)
      : Checkpoint(dir, model, std::move(sampling), std::move(tensors),
                   std::move(sources), scopes),
        isOfMlx(hasMlxConvolution()) {
    adaptWeights(adapt);
    if (model.architecture == Architecture::Qwen1)
      divideQwen1Projections(weights());
    if (layersOf(model.architecture).hasLinear) {
      mapValues(weights(), kRateMaps);
      // MLX has added the 1.
      if (!isOfMlx)
        mapValues(weights(), kNormMaps);
    }
    divideScopes();
  }

  std::string ownName(std::string_view name) const override {
    if (const StoredTensor *tensor = tensors().find(name))
      return tensor->name;
    if (config().architecture == Architecture::Qwen1)
      return qwen1Name(name);
    return name.starts_with(kTextModel)
               ? prefix() + std::string(name.substr(kTextModel.size()))
               : std::string(name);
  }

  /// The convolution of a channel has one input, which is the last dimension
  /// in MLX.
  WeightShape ownShape(std::string_view name,
                       const WeightShape &shape) const override {
    WeightShape own = shape;
    if (name.ends_with(kConvolution))
      own.sizes.insert(own.sizes.begin() + (isOfMlx ? 2 : 1), 1);
    return own;
  }

  std::optional<CheckpointTokenizer> readTokenizer() const override {
    return readTokenizerFiles(path());
  }

private:
  /// Whether a convolution has its input as the last dimension.
  bool hasMlxConvolution() const {
    return std::ranges::any_of(tensors().tensors(), [](const auto &tensor) {
      const std::vector<int64_t> &shape = tensor.second.shape;
      return tensor.first.ends_with(kConvolution) && shape.size() == 3 &&
             shape[1] != 1 && shape[2] == 1;
    });
  }
  /// What the names of the text model's tensors begin with.
  std::string prefix() const {
    const auto &all = tensors().tensors();
    const auto layer = all.lower_bound(kTextLayers);
    if (layer == all.end() || !layer->first.starts_with(kTextLayers))
      return std::string(kTextModel);
    const size_t rest = layer->first.size() - kTextModel.size();
    const std::string &own = layer->second.name;
    return own.substr(0, own.size() - std::min(rest, own.size()));
  }

  /// Whether MLX has converted a hybrid.
  const bool isOfMlx;
};
} // namespace

/// Throws Error if `dir` has an adapter and no model.
static void checkIsModel(const fs::path &dir) {
  if (isThere(dir / "adapter_config.json") && !isThere(dir / "config.json"))
    throw Error(part::file(dir.string()) + " is " + part::found("an adapter") +
                " when " + part::needed("a model") +
                " is needed; compile its base model with --lora " +
                dir.string());
}

static std::unique_ptr<Checkpoint>
openFolder(const fs::path &dir, const AdaptFn &adapt,
           std::span<const ScopedModel> scopes) {
  requireDirectory(dir);
  checkIsModel(dir);
  ModelConfig model = readModelConfig(dir);
  model.output.pooling = readPooling(dir);
  StoredTensors tensors = openSafetensors(dir);
  if (model.architecture == Architecture::Qwen1)
    tensors = nameAsQwen2(std::move(tensors));
  WeightSources sources = readWeights(tensors, model);
  GenerationConfig sampling = readGenerationConfig(dir, model);
  return std::make_unique<FolderCheckpoint>(dir, model, std::move(sampling),
                                            std::move(tensors),
                                            std::move(sources), adapt, scopes);
}

static bool isGguf(const fs::path &path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::unique_ptr<Checkpoint>
qwen::openCheckpoint(const fs::path &path, const AdaptFn &adapt,
                     std::span<const ScopedModel> scopes) try {
  if (isGguf(path))
    return openGguf(path, adapt, scopes);
  return openFolder(path, adapt, scopes);
} catch (...) {
  throwInputError();
}

std::string qwen::folderModelName(const ModelConfig &model,
                                  const std::string &name) {
  const std::string result = modelName(name);
  return model.architecture == Architecture::Qwen1 ? qwen2Name(result) : result;
}

/// The NAME of a folder models--OWNER--NAME/snapshots/REVISION.
static std::optional<std::string> hubName(const fs::path &folder) {
  const std::string model =
      folder.parent_path().parent_path().filename().string();
  const size_t at = model.rfind("--");
  if (folder.parent_path().filename() != "snapshots" ||
      !model.starts_with("models--") || at + 2 == model.size())
    return std::nullopt;
  return model.substr(at + 2);
}

std::string qwen::checkpointName(const fs::path &path) {
  // A file of Hugging Face's cache is a link to one that is named by a hash, so
  // links are not followed. The path of a folder may end with "." or "/".
  std::error_code error;
  fs::path full = fs::absolute(path, error).lexically_normal();
  if (full.filename().empty())
    full = full.parent_path();
  const std::string name = full.filename().string();
  if (error || name.empty())
    return "model";
  if (!isGguf(path))
    return hubName(full).value_or(name);
  return ggufModelName(name);
}

uint64_t qwen::weightFileBytes(const fs::path &path) {
  uint64_t bytes = 0;
  std::error_code ignored;
  const auto add = [&](const fs::path &file) {
    if (const uint64_t size = fs::file_size(file, ignored); !ignored)
      bytes += size;
    return !ignored;
  };
  if (isGguf(path)) {
    const std::string file = path.filename().string();
    add(path);
    for (uint64_t i = 1; const auto name = ggufSplitName(file, i); ++i)
      if (!add(path.parent_path() / *name))
        break;
    return bytes;
  }
  for (const auto &entry : fs::directory_iterator(path, ignored))
    if (entry.path().extension() == ".safetensors")
      add(entry.path());
  return bytes;
}
