//===- DivideTensors.cpp - Weights that share tensors ---------------------===//
//
// The layouts of the tensors of experts, of linear attention and of draft
// heads.
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
  for (const NamedLayer &layer : namedLayers()) {
    const auto *linear = std::get_if<LinearAttention>(&layer.kind);
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
    const std::string path = layer.path + "linear_attn.in_proj_";
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

void Checkpoint::turnExperts(const std::string &path,
                             const ExpertsShape &experts) {
  const auto hasOutputsFirst = [&](const std::string &name, int64_t outputs,
                                   int64_t k) {
    const StoredTensor *tensor = stored.find(name);
    return tensor &&
           tensor->shape == std::vector<int64_t>{experts.count, outputs, k};
  };
  const int64_t both = 2 * experts.width, hidden = model.hiddenSize;
  const std::string up = path + "gate_up_proj.weight",
                    down = path + "down_proj.weight";
  // One of the two matrices is not square.
  if (!sources.find(up) || (hasOutputsFirst(up, both, hidden) &&
                            hasOutputsFirst(down, hidden, experts.width)))
    return;
  const auto turn = [&](const std::string &name, int64_t outputs, int64_t k) {
    const WeightSources::Entry entry =
        weight(name, {{experts.count, k, outputs}});
    if (!entry.source->floatType())
      throw Error(entry.source->name() + " has " +
                  part::found(std::string(entry.source->form())) +
                  ", which is not supported for experts with K before "
                  "outputs; " +
                  part::needed("a checkpoint of floats") + " is needed");
    sources.set(name, {makeTransposed(*stored.find(name)), entry.tensors});
  };
  turn(up, both, hidden);
  turn(down, hidden, experts.width);
}

void Checkpoint::stackExperts(const std::string &path, const std::string &name,
                              const ExpertsShape &experts,
                              const WeightShape &shape) {
  if (sources.find(path + name + ".weight"))
    return;
  std::vector<WeightSourcePtr> all;
  std::vector<std::string> tensors;
  for (int64_t i = 0; i < experts.count; ++i) {
    std::string tensor = path;
    tensor.append(std::to_string(i)).append(".").append(name).append(".weight");
    const WeightSources::Entry &entry = weight(tensor, shape);
    all.push_back(entry.source);
    tensors.insert(tensors.end(), entry.tensors.begin(), entry.tensors.end());
  }
  sources.set(path + name + ".weight",
              {makeStacked(std::move(all)), std::move(tensors)});
}

void Checkpoint::stackExperts() {
  for (const NamedLayer &layer : namedLayers()) {
    const ExpertsShape *experts = layer.experts();
    if (!experts)
      continue;
    const std::string path = layer.path + "mlp.experts.";
    const int64_t width = experts->width, hidden = model.hiddenSize;
    if (layersOf(model.architecture).transposesExperts && !model.isGguf)
      turnExperts(path, *experts);
    if (sources.find(path + "gate_up_proj.weight")) {
      const WeightSources::Entry both = weight(
          path + "gate_up_proj.weight", {{experts->count, 2 * width, hidden}});
      for (const auto &[name, first] :
           {std::pair("gate_proj", int64_t{0}), std::pair("up_proj", width)})
        sources.set(path + name + ".weight",
                    {makeSlices(both.source, first, width), both.tensors});
    }
    // The tensors of a GGUF file are those of all experts.
    if (model.isGguf)
      continue;
    for (int64_t i = 0; i < experts->count; ++i)
      orderColumnsOf(path + std::to_string(i) + ".");
    stackExperts(path, "gate_proj", *experts, {{width, hidden}});
    stackExperts(path, "up_proj", *experts, {{width, hidden}});
    stackExperts(path, "down_proj", *experts, {{hidden, width}});
  }
}

//===----------------------------------------------------------------------===//
// Draft heads
//===----------------------------------------------------------------------===//

void Checkpoint::divideDraftHead() {
  for (const auto &[scope, configOf] : scopes) {
    const std::string path = scope.weight("fc.");
    if (!sources.find(path + "weight") || !configOf(model, stored))
      continue;
    const int64_t hidden = model.hiddenSize;
    const WeightSources::Entry both =
        weight(path + "weight", {{hidden, 2 * hidden}});
    sources.set(path + "embedding.weight",
                {makeColumns(both.source, 0, hidden), both.tensors});
    sources.set(path + "hidden.weight",
                {makeColumns(both.source, hidden, hidden), both.tensors});
  }
}
