//===- UnusedTensors.cpp - Tensors that a model does not use --------------===//

#include "UnusedTensors.h"

#include "qwen/Import/Checkpoint/Known.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Support/InputError.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;

static constexpr char kOption[] = "--ignore-tensors";

UnusedTensors::UnusedTensors(const Checkpoint &checkpoint,
                             const std::vector<std::string> &ignored)
    : checkpoint(checkpoint) {
  for (const std::string &text : ignored)
    rules.push_back({Pattern(text, part::subject(kOption)), text});
}

bool UnusedTensors::isIgnored(const StoredTensor &tensor) {
  bool result = false;
  for (Rule &rule : rules)
    if (rule.names.matchesPart(tensor.name))
      result = rule.isUsed = true;
  return result;
}

/// Whether the tensor `name` is a bias of zeros beside integers: writers of
/// GPTQ give each matrix a bias. A layer of the model may have another number
/// than its tensors.
static bool isZeroBias(const std::string &name, const StoredTensor &tensor,
                       const WeightSources &weights) {
  constexpr std::string_view kBias = ".bias";
  if (!name.ends_with(kBias) || !tensor.type)
    return false;
  const std::string module = name.substr(0, name.size() - kBias.size() + 1);
  const auto isOfModule = [&](const std::string &other) {
    return other.starts_with(module);
  };
  return std::ranges::all_of(tensor.bytes,
                             [](uint8_t byte) { return byte == 0; }) &&
         std::ranges::any_of(weights.all(), [&](const auto &weight) {
           const std::vector<std::string> &tensors = weight.second.tensors;
           return tensors.size() > 1 &&
                  std::ranges::any_of(tensors, isOfModule);
         });
}

void UnusedTensors::add(const std::string &name, const StoredTensor &tensor) {
  const bool ignored = isIgnored(tensor);
  auto known = knownTensorKind(name);
  if (!known && isZeroBias(name, tensor, checkpoint.weights()))
    known = "biases of zeros";
  if (!known && !ignored) {
    unknown.emplace(tensor.name, &tensor);
    return;
  }
  const std::string kind(known.value_or(kIgnoredKind));
  byKind[kind].push_back(tensor.name);
}

UnusedTensors::ByKind UnusedTensors::finish() {
  if (!unknown.empty()) {
    const StoredTensor &first = *unknown.begin()->second;
    const size_t others = unknown.size() - 1;
    throw InputError(
        describeTensor(first) +
        (others ? " (and " + std::to_string(others) + " more)" : "") +
        " is not a tensor of " +
        std::string(infoOf(checkpoint.config().architecture).name) +
        "; --ignore-tensors REGEX compiles the model without them");
  }
  for (const Rule &rule : rules)
    if (!rule.isUsed)
      throw Error(part::subject(kOption) + " " + part::found(quote(rule.text)) +
                  " matches no tensor that the model does not use");
  return std::move(byKind);
}
