//===- Adapters.cpp - Adapters that are merged into a model ---------------===//

#include "qwen/Import/Adapters/Adapters.h"

#include "Adapter.h"
#include "ExpertFactors.h"

#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Import/Checkpoint/Known.h"
#include "qwen/Import/Checkpoint/Safetensors.h"
#include "qwen/Numerics/Stored.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"
#include "qwen/Weights/Adapted.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

using namespace qwen;
namespace fs = std::filesystem;

namespace {
/// A row of Adapters.def.
struct Kind {
  std::string_view name;
  std::string_view file;
  Adapter (*read)(const fs::path &, const ModelConfig &);
};
} // namespace

static constexpr Kind kKinds[] = {
#define QWEN_ADAPTER(Kind, Name, File) {Name, File, read##Kind},
#include "qwen/Import/Adapters/Adapters.def"
};

/// The kind of the adapter at `path`.
static const Kind &kindOf(const fs::path &path) {
  std::error_code error;
  const bool isFile = fs::is_regular_file(path, error);
  if (!isFile)
    requireDirectory(path);
  std::string files;
  for (const Kind &kind : kKinds) {
    if (kind.file.empty() ? isFile
                          : !isFile && fs::exists(path / kind.file, error))
      return kind;
    if (!kind.file.empty())
      files += (files.empty() ? "" : " or ") + std::string(kind.file);
  }
  throw Error(part::file(path.string()) + " has no " + part::needed(files) +
              "; a pickle (adapter_model.bin) is not supported: load it with "
              "PEFT and save it again");
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

void qwen::checkFactor(const StoredTensor &tensor, const WeightShape &needed) {
  const ErrorText what = describeTensor(tensor);
  if (tensor.shape != needed.sizes)
    throw Error(what + " has shape " + part::found(shapeText(tensor.shape)) +
                " when " + part::needed(shapeText(needed.sizes)) +
                " is needed");
  if (!tensor.type || isBlocks(*tensor.type))
    throw Error(what + " has type " + part::found(tensor.typeName) + " when " +
                part::needed("F32, F16 or BF16") + " is needed");
  constexpr int64_t kTogether = 4096;
  std::array<float, kTogether> values;
  for (int64_t i = 0; i < needed.values(); i += kTogether) {
    const int64_t count = std::min(kTogether, needed.values() - i);
    numerics::dequantize(*tensor.type,
                         tensor.bytes.data() + storedBytes(*tensor.type, i),
                         count, values.data());
    if (!std::all_of(values.begin(), values.begin() + count,
                     [](float value) { return std::isfinite(value); }))
      throw Error(what + " has " + part::found("a value that is not finite"));
  }
}

//===----------------------------------------------------------------------===//
// Merging
//===----------------------------------------------------------------------===//

static constexpr char kEmbedding[] = "model.embed_tokens";
static constexpr char kHead[] = "lm_head.weight";

namespace {
/// A tensor of a role, and how it lies.
struct Part {
  const StoredTensor *tensor = nullptr;
  const RoleName *row = nullptr;
};

/// The tensors of a module of the model.
struct Module {
  /// Its name in the adapter.
  std::string name;
  std::array<Part, kTensorRoles> parts;

  const Part &at(TensorRole role) const {
    return parts[static_cast<size_t>(role)];
  }
};

class Merger {
public:
  Merger(const Adapter &adapter, double scale, const ModelConfig &model,
         WeightSources &weights)
      : adapter(adapter), scale(scale), model(model), weights(weights) {}

  void run();
  /// The number of weights that have changed.
  size_t changes() const { return changed.size(); }
  /// The numbers of tensors that have no effect, by kind.
  const std::map<std::string, size_t> &unusedTensors() const { return unused; }

private:
  /// The name of `tensor` in the adapter.
  std::string nameOf(const StoredTensor &tensor) const {
    return adapter.plainName ? adapter.plainName(tensor.name) : tensor.name;
  }
  void add(const StoredTensor &tensor);
  bool addToModule(const StoredTensor &tensor);
  void replace(const std::string &name, const StoredTensor &tensor);
  void update(const std::string &name, const Module &module);
  void updateExperts(const std::string &name, const Module &module,
                     const ExpertsShape &experts);
  void updateExperts(const std::string &name, const Module &module,
                     const ExpertFactors &factors, int64_t first,
                     int64_t outputs);
  int64_t pool(const WeightSource &source, const StoredTensor &right,
               int64_t columns, double &factor) const;
  void updateBias(const std::string &name, const Module &module, double factor);
  const ExpertsShape *expertsOf(const std::string &name) const;
  const StoredTensor &partner(const Module &module, const Part &of,
                              TensorRole role) const;
  const WeightSources::Entry *find(const std::string &name) const;
  const WeightSources::Entry &base(const std::string &name,
                                   const StoredTensor &tensor) const;
  void set(const std::string &name, WeightSourcePtr source) {
    weights.set(name, {std::move(source), find(name)->tensors});
    changed.insert(name);
  }

  const Adapter &adapter;
  const double scale;
  const ModelConfig &model;
  WeightSources &weights;
  /// By their names in the model.
  std::map<std::string, Module> modules;
  std::map<std::string, const StoredTensor *> whole;
  std::map<std::string, size_t> unused;
  std::set<std::string> changed;
};
} // namespace

/// The weight `name` of the base model, or null. A tied model's lm_head is the
/// embedding.
const WeightSources::Entry *Merger::find(const std::string &name) const {
  const WeightSources::Entry *entry = weights.find(name);
  if (!entry && name == kHead && model.tied)
    entry = weights.find(std::string(kEmbedding) + ".weight");
  return entry;
}

const WeightSources::Entry &Merger::base(const std::string &name,
                                         const StoredTensor &tensor) const {
  if (const WeightSources::Entry *entry = find(name))
    return *entry;
  throw Error(describeTensor(tensor) + " matches no weight of the " +
              std::string(infoOf(model.architecture).name) + ": it has no " +
              part::needed(quote(name)));
}

/// Whether a role has such a name.
bool Merger::addToModule(const StoredTensor &tensor) {
  const std::string full = nameOf(tensor);
  for (const RoleName &row : adapter.roles) {
    if (!full.ends_with(row.suffix))
      continue;
    const std::string own = full.substr(0, full.size() - row.suffix.size());
    std::string name = adapter.modelName(own);
    // A parameter of experts is the weight of a module in the model.
    constexpr std::string_view kWeight = ".weight";
    if (name.ends_with(kWeight))
      name.resize(name.size() - kWeight.size());
    if (row.isEmbedding != (name == kEmbedding))
      continue;
    Module &module = modules[name];
    module.name = own;
    Part &part = module.parts[static_cast<size_t>(row.role)];
    if (part.tensor)
      throw Error(describeTensor(tensor) + " is the same as " +
                  part::found(quote(part.tensor->name)));
    part = {&tensor, &row};
    return true;
  }
  return false;
}

void Merger::add(const StoredTensor &tensor) {
  if (addToModule(tensor))
    return;
  const std::string name = adapter.modelName(nameOf(tensor));
  if (!adapter.hasWholeTensors)
    throw Error(describeTensor(tensor) + " is not " +
                part::needed("a lora_a or a lora_b"));
  if (!whole.emplace(name, &tensor).second)
    throw Error(describeTensor(tensor) +
                " has the name of another tensor in the model");
}

/// Puts a whole tensor in the place of a weight.
void Merger::replace(const std::string &name, const StoredTensor &tensor) {
  const WeightSourcePtr &source = base(name, tensor).source;
  checkFactor(tensor, source->shape());
  set(name, makeReplaced(source, tensor));
}

/// The tensor of `role` beside `of`.
const StoredTensor &Merger::partner(const Module &module, const Part &of,
                                    TensorRole role) const {
  if (const StoredTensor *tensor = module.at(role).tensor)
    return *tensor;
  for (const RoleName &row : adapter.roles)
    if (row.role == role && row.isEmbedding == of.row->isEmbedding)
      throw Error(describeTensor(*of.tensor) + " needs " +
                  part::needed(quote(module.name + std::string(row.suffix))) +
                  ", which is not there");
  __builtin_unreachable();
}

/// The columns of `source` whose mean is an input of an update with `columns`
/// inputs, or 1. Divides `factor` by their number.
int64_t Merger::pool(const WeightSource &source, const StoredTensor &right,
                     int64_t columns, double &factor) const {
  const int64_t k = source.shape().k(), group = groupOf(source);
  int64_t together = adapter.pool;
  if (adapter.poolsGroups && group > 0 && columns < k && columns > 0 &&
      k % (columns * group) == 0)
    together = k / columns;
  if (together == 0)
    return 1;
  const auto needs = [&](const std::string &what) {
    return Error(describeTensor(right) + " has means of " +
                 part::found(together) + " inputs when " + part::needed(what) +
                 " is needed");
  };
  if (k % together != 0)
    throw needs("a divisor of " + std::to_string(k));
  if (group > 0 && together % group != 0)
    throw needs("a multiple of the group of its base, " +
                std::to_string(group) + ",");
  const auto inputs = static_cast<double>(together);
  factor /= inputs;
  if (adapter.pool > 0)
    factor *= static_cast<double>(k) / inputs;
  return together;
}

/// Adds the low-rank update of a module to its matrix, `name`.weight.
void Merger::update(const std::string &name, const Module &module) {
  const Part &any = *std::ranges::find_if(
      module.parts, [](const Part &part) { return part.tensor != nullptr; });
  const WeightSourcePtr source = base(name + ".weight", *any.tensor).source;
  const StoredTensor &left = partner(module, any, TensorRole::Left);
  const StoredTensor &right = partner(module, any, TensorRole::Right);
  const bool isLeftTurned = module.at(TensorRole::Left).row->isTransposed;
  const bool isRightTurned = module.at(TensorRole::Right).row->isTransposed;
  if (source->shape().sizes.size() != 2 || right.shape.size() != 2)
    throw Error(describeTensor(right) + " has shape " +
                part::found(shapeText(right.shape)) + " when " +
                part::needed("an update of a matrix") + " is needed");
  const int64_t rank = right.shape[isRightTurned ? 1 : 0];
  const int64_t outputs = source->shape().outputs(), k = source->shape().k();
  const auto sizes = [](int64_t rows, int64_t columns, bool isTransposed) {
    return isTransposed ? WeightShape{{columns, rows}}
                        : WeightShape{{rows, columns}};
  };
  const double factor = scale * adapter.scale(module.name, rank);
  LowRankUpdate change = {{left, isLeftTurned}, {right, isRightTurned}, factor};
  change.group = pool(*source, right, change.right.columns(), change.scale);
  checkFactor(right, sizes(rank, k / change.group, isRightTurned));
  checkFactor(left, sizes(outputs, rank, isLeftTurned));
  const StoredTensor *norms = module.at(TensorRole::Norms).tensor;
  if (norms && (!adapter.hasNorms || any.row->isEmbedding))
    throw Error(describeTensor(*norms) +
                (adapter.hasNorms
                     ? " is of the embedding, where DoRA is not supported"
                     : " is there, but the configuration has no DoRA"));
  if (adapter.hasNorms && change.group > 1)
    throw Error(describeTensor(right) +
                " is of QA-LoRA, where DoRA is not supported");
  if (adapter.hasNorms) {
    change.norms = partner(module, any, TensorRole::Norms);
    checkFactor(*change.norms, {{outputs}});
  }
  set(name + ".weight", makeLora(source, std::move(change)));
  updateBias(name + ".bias", module, factor);
}

/// Adds the outputs of `factors` from `first` on to the matrices `name` of all
/// experts, which have `outputs` each: they are one weight, or each has one.
void Merger::updateExperts(const std::string &name, const Module &module,
                           const ExpertFactors &factors, int64_t first,
                           int64_t outputs) {
  const StoredTensor &any = *module.at(TensorRole::Right).tensor;
  const double factor = scale * adapter.scale(module.name, factors.rank());
  const WeightSources::Entry *all = find(name + ".weight");
  const size_t split = name.rfind('.');
  std::vector<WeightSourcePtr> matrices;
  for (int64_t i = 0; i < model.experts->count; ++i) {
    const LowRankUpdate change = factors.of(i, first, outputs, factor);
    const std::string own = name.substr(0, split + 1) + std::to_string(i) +
                            name.substr(split) + ".weight";
    if (all)
      matrices.push_back(makeLora(
          makeOutputs(all->source, outputsFrom(i * outputs, outputs)), change));
    else
      set(own, makeLora(base(own, any).source, change));
  }
  if (all)
    set(name + ".weight", makeStacked(std::move(matrices)));
}

/// Adds the low-rank updates of the matrices of all experts of a layer, whose
/// module is `name`.
void Merger::updateExperts(const std::string &name, const Module &module,
                           const ExpertsShape &experts) {
  const Part &any = *std::ranges::find_if(
      module.parts, [](const Part &part) { return part.tensor != nullptr; });
  const StoredTensor &left = partner(module, any, TensorRole::Left);
  const StoredTensor &right = partner(module, any, TensorRole::Right);
  for (const TensorRole role : {TensorRole::Norms, TensorRole::Bias})
    if (const StoredTensor *tensor = module.at(role).tensor)
      throw Error(describeTensor(*tensor) +
                  " is of experts, which have updates of matrices alone");
  if (adapter.hasNorms || adapter.pool > 0)
    throw Error(describeTensor(right) + " is of experts, where " +
                part::found(adapter.hasNorms ? "DoRA" : "QA-LoRA") +
                " is not supported");
  constexpr std::string_view kBoth = "gate_up_proj";
  const int64_t width = experts.width, hidden = model.hiddenSize;
  const bool isDown = name.ends_with(".down_proj");
  const bool areBoth = name.ends_with(kBoth);
  const ExpertFactors factors(
      left, right, experts.count,
      isDown ? WeightShape{{hidden, width}}
             : WeightShape{{areBoth ? 2 * width : width, hidden}});
  if (!areBoth || find(name + ".weight")) {
    updateExperts(name, module, factors, 0,
                  isDown    ? hidden
                  : areBoth ? 2 * width
                            : width);
    return;
  }
  const std::string path = name.substr(0, name.size() - kBoth.size());
  updateExperts(path + "gate_proj", module, factors, 0, width);
  updateExperts(path + "up_proj", module, factors, width, width);
}

void Merger::updateBias(const std::string &name, const Module &module,
                        double factor) {
  const StoredTensor *bias = module.at(TensorRole::Bias).tensor;
  if (!bias)
    return;
  const WeightSourcePtr source = base(name, *bias).source;
  checkFactor(*bias, source->shape());
  set(name, makeSum(source, *bias, factor));
}

/// The experts of the model if the module `name` has the matrices of all of a
/// layer, or null.
const ExpertsShape *Merger::expertsOf(const std::string &name) const {
  constexpr std::string_view kExperts = ".mlp.experts.";
  const size_t at = name.find(kExperts);
  const bool isOne =
      at != name.npos && name.find('.', at + kExperts.size()) == name.npos;
  return isOne && model.experts ? &*model.experts : nullptr;
}

void Merger::run() {
  for (const StoredTensor &tensor : adapter.tensors) {
    const std::string name = adapter.modelName(nameOf(tensor));
    const auto kind = knownTensorKind(name);
    if (kind && !find(name))
      ++unused[std::string(*kind)];
    else
      add(tensor);
  }
  for (const auto &[name, tensor] : whole)
    replace(name, *tensor);
  for (const auto &[name, module] : modules)
    if (const ExpertsShape *experts = expertsOf(name))
      updateExperts(name, module, *experts);
    else
      update(name, module);
}

StoredTensors qwen::mergeAdapter(const AdapterOption &option,
                                 ModelConfig &model, WeightSources &weights) {
  const Kind &kind = kindOf(option.path);
  const std::string path = option.path.string(), file(kind.file);
  const ErrorText what =
      part::file(path) + ", an adapter of " + std::string(kind.name) + ",";
  Adapter adapter = kind.read(option.path, model);
  if (!file.empty())
    adapter.tensors = parseSafetensors(adapter.files.map(file),
                                       (option.path / file).string());
  if (layersOf(model.architecture).hasLinear && adapter.isGguf != model.isGguf)
    throw Error(
        what + " does not fit a hybrid in " +
        part::found(adapter.isGguf ? "a Hugging Face folder" : "a GGUF file") +
        ": use the model in " +
        part::needed(adapter.isGguf ? "a GGUF file" : "a Hugging Face folder"));
  Merger merger(adapter, option.scale, model, weights);
  merger.run();
  if (merger.changes() == 0)
    throw Error(what + " has " +
                part::found("no tensor that changes the model"));
  std::string line =
      what.line() + " changes " + std::to_string(merger.changes()) + " weights";
  if (option.scale != 1)
    line += ", times " + nlohmann::json(option.scale).dump();
  for (const auto &[unused, count] : merger.unusedTensors())
    line += "; not used, " + unused + ": " + std::to_string(count) + " tensors";
  for (const std::string &key : adapter.unknownKeys)
    line += (&key == adapter.unknownKeys.data() ? "; not used, unknown keys: "
                                                : ", ") +
            key;
  model.notes.push_back(printable(line));
  return std::move(adapter.files);
}
