//===- DivideTensors.cpp - Weights that share tensors ---------------------===//
//
// The layouts of the tensors of experts and of linear attention.
//
//===----------------------------------------------------------------------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "qwen/Support/Error.h"
#include "qwen/Weights/Sources.h"
#include "qwen/Weights/Transposed.h"

using namespace qwen;

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

/// Appends `count` numbers from `first` on.
static void append(std::vector<int64_t> &numbers, int64_t first,
                   int64_t count) {
  for (int64_t number : outputsFrom(first, count))
    numbers.push_back(number);
}

void Checkpoint::divideLinearProjections() {
  if (!layersOf(model.architecture).joinsProjections)
    return;
  for (const auto &[number, layer] : namedLayers()) {
    const auto *linear = std::get_if<LinearAttention>(
        &model.layerKinds[static_cast<size_t>(number)]);
    if (!linear)
      continue;
    const auto &[keyHeads, keyDim, heads, valueDim] = *linear;
    const int64_t sharing = heads / keyHeads, values = sharing * valueDim;
    std::vector<int64_t> queries, keys, v, z, b, a;
    for (int64_t head = 0; head < keyHeads; ++head) {
      const int64_t first = head * 2 * (keyDim + values);
      append(queries, first, keyDim);
      append(keys, first + keyDim, keyDim);
      append(v, first + 2 * keyDim, values);
      append(z, first + 2 * keyDim + values, values);
      append(b, head * 2 * sharing, sharing);
      append(a, head * 2 * sharing + sharing, sharing);
    }
    queries.insert(queries.end(), keys.begin(), keys.end());
    queries.insert(queries.end(), v.begin(), v.end());
    const std::string path = layer + "linear_attn.in_proj_";
    const auto divide =
        [&](const char *from, int64_t outputs,
            std::initializer_list<std::pair<const char *, std::vector<int64_t>>>
                parts) {
          // GGUF files have some of them apart.
          if (sources.find(path + parts.begin()->first + ".weight"))
            return;
          const WeightSources::Entry all =
              weight(path + from + ".weight", {{outputs, model.hiddenSize}});
          for (const auto &[name, numbers] : parts)
            sources.set(path + name + ".weight",
                        {makeOutputs(all.source, numbers), all.tensors});
        };
    divide("qkvz", linear->channels() + heads * valueDim,
           {{"qkv", queries}, {"z", z}});
    divide("ba", 2 * heads, {{"b", b}, {"a", a}});
  }
}

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

/// Throws Error unless `source`, of experts, is floats: published forms of
/// integers with experts are not known.
static void requireFloats(const WeightSource &source) {
  if (!source.floatType())
    throw Error(source.name() + " has " +
                part::found(std::string(source.form())) +
                ", which is not supported for experts; " +
                part::needed("a checkpoint of floats") + " is needed");
}

void Checkpoint::setGateAndUp(const std::string &path,
                              const WeightSources::Entry &both) {
  const int64_t width = both.source->shape().sizes[1] / 2;
  for (const auto &[name, first] :
       {std::pair("gate_proj", int64_t{0}), std::pair("up_proj", width)})
    sources.set(path + name + ".weight",
                {makeSlices(both.source, first, width), both.tensors});
}

void Checkpoint::divideExperts() {
  for (const auto &[number, layer] : namedLayers()) {
    const ExpertsShape *experts = model.expertsOf(number);
    const std::string path = layer + "mlp.experts.";
    if (!experts || !sources.find(path + "gate_up_proj.weight"))
      continue;
    const WeightSources::Entry both =
        weight(path + "gate_up_proj.weight",
               {{experts->count, 2 * experts->width, model.hiddenSize}});
    setGateAndUp(path, both);
  }
}

/// Throws Error for the experts of MLX, which have other names.
static void refuseMlxExperts(const StoredTensors &stored,
                             const std::string &layer) {
  if (const StoredTensor *tensor =
          stored.find(layer + "mlp.switch_mlp.gate_proj.weight"))
    throw Error(describeTensor(*tensor) + " has " +
                part::found("the experts of MLX") +
                ", which are not supported; " +
                part::needed("the checkpoint that was converted to MLX") +
                " is needed");
}

bool Checkpoint::transposesExperts(const std::string &path,
                                   const ExpertsShape &experts) const {
  if (!layersOf(model.architecture).transposesExperts)
    return false;
  const auto has = [&](const char *name, int64_t outputs, int64_t k) {
    const StoredTensor *tensor = stored.find(path + name);
    return tensor &&
           tensor->shape == std::vector<int64_t>{experts.count, outputs, k};
  };
  // One of the two matrices is not square.
  return !has("gate_up_proj", 2 * experts.width, model.hiddenSize) ||
         !has("down_proj", model.hiddenSize, experts.width);
}

void Checkpoint::stackExperts() {
  for (const auto &[number, layer] : namedLayers()) {
    const ExpertsShape *experts = model.expertsOf(number);
    if (!experts)
      continue;
    refuseMlxExperts(stored, layer);
    const std::string path = layer + "mlp.experts.";
    const bool isTransposed = transposesExperts(path, *experts);
    const auto set = [&](const std::string &name, WeightSourcePtr source,
                         std::vector<std::string> tensors) {
      requireFloats(*source);
      sources.set(path + name + ".weight",
                  {std::move(source), std::move(tensors)});
    };
    // A tensor an expert.
    const auto stack = [&](const std::string &name, int64_t outputs,
                           int64_t k) {
      std::vector<WeightSourcePtr> all;
      std::vector<std::string> tensors;
      for (int64_t i = 0; i < experts->count; ++i) {
        std::string tensor = path;
        tensor.append(std::to_string(i))
            .append(".")
            .append(name)
            .append(".weight");
        const WeightSources::Entry &entry = weight(tensor, {{outputs, k}});
        all.push_back(entry.source);
        tensors.insert(tensors.end(), entry.tensors.begin(),
                       entry.tensors.end());
      }
      set(name, makeStacked(std::move(all)), std::move(tensors));
    };
    // The matrices of all experts in one tensor.
    const auto stacked = [&](const std::string &name, int64_t outputs,
                             int64_t k) -> WeightSources::Entry {
      if (!isTransposed)
        return weight(path + name, {{experts->count, outputs, k}});
      WeightSources::Entry entry =
          weight(path + name, {{experts->count, k, outputs}});
      requireFloats(*entry.source);
      entry.source = makeTransposed(*stored.find(path + name));
      return entry;
    };
    const int64_t width = experts->width, hidden = model.hiddenSize;
    if (stored.find(path + "gate_up_proj")) {
      const WeightSources::Entry both =
          stacked("gate_up_proj", 2 * width, hidden);
      requireFloats(*both.source);
      setGateAndUp(path, both);
    } else {
      stack("gate_proj", width, hidden);
      stack("up_proj", width, hidden);
    }
    if (stored.find(path + "down_proj")) {
      const auto [source, tensors] = stacked("down_proj", hidden, width);
      set("down_proj", source, tensors);
    } else {
      stack("down_proj", hidden, width);
    }
  }
}
