//===- RemoveLayers.cpp - A checkpoint without some of its layers ---------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <charconv>

using namespace qwen;

/// The number of the layer in the name of a weight, and the rest of the name.
static std::optional<std::pair<int64_t, std::string>>
layerNameOf(std::string_view name) {
  if (!name.starts_with(kTextLayers))
    return std::nullopt;
  name.remove_prefix(kTextLayers.size());
  int64_t number = 0;
  const auto [rest, error] =
      std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc())
    return std::nullopt;
  return std::pair(number, std::string(rest, name.data() + name.size()));
}

/// The new number of each layer, or -1. Throws Error.
static std::vector<int64_t> newNumbers(const ModelConfig &model,
                                       const std::vector<int64_t> &removed) {
  std::vector<int64_t> numbers(static_cast<size_t>(model.layers));
  for (int64_t layer : removed) {
    if (layer < 0 || layer >= model.layers)
      throw Error(part::subject("--prune") + " names layer " +
                  part::found(layer) + " when the model has layers " +
                  part::needed("0 to " + std::to_string(model.layers - 1)));
    numbers[static_cast<size_t>(layer)] = -1;
  }
  int64_t next = 0;
  for (int64_t &number : numbers)
    if (number == 0)
      number = next++;
  if (next == 0)
    throw Error(part::subject("--prune") + " removes all " +
                std::to_string(model.layers) +
                " layers when at least 1 must stay");
  return numbers;
}

std::set<std::string> Checkpoint::removeLayers(const Pruning &pruning) {
  const std::vector<int64_t> numbers = newNumbers(model, pruning.layers);
  std::vector<LayerKind> kinds;
  std::vector<MlpKind> mlpKinds;
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] >= 0) {
      kinds.push_back(model.layerKinds[i]);
      mlpKinds.push_back(model.mlpKinds[i]);
    }
  if (!std::equal(kinds.begin(), kinds.end(), model.layerKinds.begin()))
    throw Error(part::subject("--prune") +
                " breaks the pattern of full and linear attention of " +
                part::file(where.string()) +
                ": the layers that stay must be those of a smaller hybrid");
  WeightSources kept;
  std::set<std::string> removed;
  for (const auto &[name, entry] : sources.all()) {
    const auto layer = layerNameOf(name);
    const bool isLayer = layer && layer->first < std::ssize(numbers);
    const int64_t number =
        isLayer ? numbers[static_cast<size_t>(layer->first)] : 0;
    if (number < 0)
      removed.insert(entry.tensors.begin(), entry.tensors.end());
    else
      kept.set(isLayer ? std::string(kTextLayers) + std::to_string(number) +
                             layer->second
                       : name,
               entry);
  }
  sources = std::move(kept);
  model.layers = std::ssize(kinds);
  model.layerKinds = std::move(kinds);
  model.setMlpKinds(std::move(mlpKinds));
  model.pruning = pruning;
  model.notes.push_back(pruning.describe());
  return removed;
}
