//===- DivideTensors.cpp - Weights that share tensors ---------------------===//
//
// The layouts of the tensors of layers: of queries with gates, of linear
// attention and of experts.
//
//===----------------------------------------------------------------------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"
#include "qwen/Weights/Sources.h"
#include "qwen/Weights/Transposed.h"

#include <array>

using namespace qwen;

void qwen::padWeight(Checkpoint &checkpoint, const std::string &name,
                     const WeightShape &shape) {
  const WeightSources::Entry entry = checkpoint.weight(name, shape);
  WeightShape padded = shape;
  for (int64_t &size : padded.sizes)
    size = alignTo(size, kGroup);
  checkpoint.weights().set(
      name, {makePadded(entry.source, std::move(padded)), entry.tensors});
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Divides q_proj of a layer under `path`, with its gate.
static void divideQueries(Checkpoint &checkpoint, const std::string &path,
                          const ModelConfig &config) {
  const int64_t head = config.headDim, outputs = config.heads * head;
  const std::string query = path + "self_attn.q_proj.";
  const WeightSources::Entry all =
      checkpoint.weight(query + "weight", {{2 * outputs, config.hiddenSize}});
  const auto set = [&](const char *name, int64_t first) {
    std::vector<int64_t> numbers = outputsFrom(first, outputs);
    for (int64_t i = 0; i < outputs; ++i)
      numbers[static_cast<size_t>(i)] += i / head * head;
    checkpoint.weights().set(query + name,
                             {makeOutputs(all.source, numbers), all.tensors});
  };
  set("weight", 0);
  set("gate.weight", head);
}

/// Appends `count` numbers from `first` on.
static void append(std::vector<int64_t> &numbers, int64_t first,
                   int64_t count) {
  for (int64_t number : outputsFrom(first, count))
    numbers.push_back(number);
}

/// Divides the projections of linear attention of a layer under `path`.
static void divideLinearProjections(Checkpoint &checkpoint,
                                    const std::string &layer,
                                    const LinearAttention &linear,
                                    int64_t hidden) {
  const auto &[keyHeads, keyDim, heads, valueDim] = linear;
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
        if (checkpoint.weights().find(path + parts.begin()->first + ".weight"))
          return;
        const WeightSources::Entry all =
            checkpoint.weight(path + from + ".weight", {{outputs, hidden}});
        for (const auto &[name, numbers] : parts)
          checkpoint.weights().set(
              path + name + ".weight",
              {makeOutputs(all.source, numbers), all.tensors});
      };
  divide("qkvz", linear.channels() + heads * valueDim,
         {{"qkv", queries}, {"z", z}});
  divide("ba", 2 * heads, {{"b", b}, {"a", a}});
}

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

/// Turns the tensors of all experts under `path` that have K before outputs.
static void turnExperts(Checkpoint &checkpoint, const std::string &path,
                        const ExpertsShape &experts, int64_t hidden) {
  const auto hasOutputsFirst = [&](const std::string &name, int64_t outputs,
                                   int64_t k) {
    const StoredTensor *tensor = checkpoint.tensors().find(name);
    return tensor &&
           tensor->shape == std::vector<int64_t>{experts.count, outputs, k};
  };
  const int64_t both = 2 * experts.width;
  const std::string up = path + "gate_up_proj.weight",
                    down = path + "down_proj.weight";
  // One of the two matrices is not square.
  if (!checkpoint.weights().find(up) ||
      (hasOutputsFirst(up, both, hidden) &&
       hasOutputsFirst(down, hidden, experts.width)))
    return;
  const auto turn = [&](const std::string &name, int64_t outputs, int64_t k) {
    const WeightSources::Entry entry =
        checkpoint.weight(name, {{experts.count, k, outputs}});
    if (!entry.source->floatType())
      throw Error(entry.source->name() + " has " +
                  part::found(std::string(entry.source->form())) +
                  ", which is not supported for experts with K before "
                  "outputs; " +
                  part::needed("a checkpoint of floats") + " is needed");
    checkpoint.weights().set(
        name,
        {makeTransposed(*checkpoint.tensors().find(name)), entry.tensors});
  };
  turn(up, both, hidden);
  turn(down, hidden, experts.width);
}

/// Gives the matrices `name` of all experts under `path`, of `shape` each, one
/// weight, if each expert has one.
static void stackMatrices(Checkpoint &checkpoint, const std::string &path,
                          const std::string &name, const ExpertsShape &experts,
                          const WeightShape &shape) {
  if (checkpoint.weights().find(path + name + ".weight"))
    return;
  std::vector<WeightSourcePtr> all;
  std::vector<std::string> tensors;
  for (int64_t i = 0; i < experts.count; ++i) {
    std::string tensor = path;
    tensor.append(std::to_string(i)).append(".").append(name).append(".weight");
    const WeightSources::Entry &entry = checkpoint.weight(tensor, shape);
    all.push_back(entry.source);
    tensors.insert(tensors.end(), entry.tensors.begin(), entry.tensors.end());
  }
  checkpoint.weights().set(path + name + ".weight",
                           {makeStacked(std::move(all)), std::move(tensors)});
}

/// Checkpoint::orderColumns() of the network whose weights are under `path`.
static void orderMlp(WeightSources &sources, const std::string &path) {
  orderInputs(sources, path + "down_proj.weight",
              std::array{path + "gate_proj.weight", path + "up_proj.weight"});
}

/// Gives the matrices of the experts of a layer one weight each.
static void stackExperts(Checkpoint &checkpoint, const std::string &layer,
                         const ExpertsShape &experts,
                         const ModelConfig &config) {
  WeightSources &sources = checkpoint.weights();
  const std::string path = layer + "mlp.experts.";
  const int64_t width = experts.width, hidden = config.hiddenSize;
  if (layersOf(config.architecture).transposesExperts && !config.isGguf)
    turnExperts(checkpoint, path, experts, hidden);
  if (sources.find(path + "gate_up_proj.weight")) {
    const WeightSources::Entry both = checkpoint.weight(
        path + "gate_up_proj.weight", {{experts.count, 2 * width, hidden}});
    for (const auto &[name, first] :
         {std::pair("gate_proj", int64_t{0}), std::pair("up_proj", width)})
      sources.set(path + name + ".weight",
                  {makeSlices(both.source, first, width), both.tensors});
  }
  // A GGUF file has one tensor for the matrices of all experts.
  if (config.isGguf)
    return;
  for (int64_t i = 0; i < experts.count; ++i)
    orderMlp(sources, path + std::to_string(i) + ".");
  stackMatrices(checkpoint, path, "gate_proj", experts, {{width, hidden}});
  stackMatrices(checkpoint, path, "up_proj", experts, {{width, hidden}});
  stackMatrices(checkpoint, path, "down_proj", experts, {{hidden, width}});
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

void qwen::divideLayers(Checkpoint &checkpoint, const ModelScope &scope,
                        const ModelConfig &config) {
  const LayerTraits &traits = layersOf(config.architecture);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string path = scope.layer(layer);
    const auto *linear = std::get_if<LinearAttention>(
        &config.layerKinds[static_cast<size_t>(layer)]);
    if (traits.hasGate && !linear)
      divideQueries(checkpoint, path, config);
    if (traits.joinsProjections && linear)
      divideLinearProjections(checkpoint, path, *linear, config.hiddenSize);
    if (const ExpertsShape *experts = config.expertsOf(layer))
      stackExperts(checkpoint, path, *experts, config);
  }
}

void Checkpoint::orderColumns() {
  for (const ScopedModel &each : scopes)
    if (const auto config = each.config(*this))
      for (int64_t layer = 0; layer < config->layers; ++layer)
        orderMlp(sources, each.scope.layer(layer) + "mlp.");
  for (const auto &[name, entry] : sources.all())
    sources.set(name, {inModelOrder(entry.source), entry.tensors});
}
