//===- EngineGroups.cpp - An engine on each group of cores ----------------===//

#include "model/EngineGroups.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

using namespace qwen;

/// Bytes of the image behind a multiple of kHugePage, in a copy as in the file.
static size_t offsetOf(const Artifact &artifact) {
  return artifact.header().weights.offset % kHugePage;
}

static Mapping copyTo(int node, const Artifact &artifact, bool lock) {
  const size_t size = artifact.header().weights.size;
  Mapping copy =
      Mapping::memory(offsetOf(artifact) + size, "a copy of the weights");
  copy.preferNode(node);
  copy.useHugePages();
  memcpy(copy.data() + offsetOf(artifact), artifact.weights(), size);
  if (lock)
    copy.lock("a copy of the weights");
  return copy;
}

/// Memory for a copy of the weights in each of so many nodes.
static MemoryLease takeCopies(const Artifact &artifact, size_t nodes,
                              MemoryBudget &budget) {
  const uint64_t bytes = nodes * artifact.header().weights.size;
  const MemoryNeed need = {
      .use = MemoryUse::Weights, .bytes = bytes, .least = bytes};
  return budget.take("a copy of the weights of " + artifact.path() +
                         " in each of " + std::to_string(nodes) + " nodes",
                     {&need, 1});
}

EngineGroups::EngineGroups(const Model &model,
                           std::span<const CoreGroup> groups,
                           const std::shared_ptr<MemoryBudget> &budget,
                           const EngineOptions &options,
                           const std::string &draftModel, bool copyToNodes) {
  const Artifact &artifact = model.artifact();
  const uint64_t weights = artifact.header().weights.size;
  if (copyToNodes) {
    for (const CoreGroup &group : groups)
      copies.try_emplace(group.node);
    copyLease = takeCopies(artifact, copies.size(), *budget);
    if (options.check != WeightCheck::Off)
      artifact.checkWeights();
    for (auto &[node, copy] : copies)
      copy = copyTo(node, artifact, options.lock);
    artifact.forget();
  }
  // Mapped weights count once, in the part of the first engine.
  const uint64_t mapped = copyToNodes ? 0 : weights;
  const uint64_t left = budget->free();
  const uint64_t part = (left - std::min(left, mapped)) / groups.size();
  for (const CoreGroup &group : groups) {
    const bool isFirst = all.empty();
    auto own = std::make_shared<MemoryBudget>();
    own->limitTo(part + (isFirst ? mapped : 0),
                 "its part of the memory of " + std::to_string(groups.size()) +
                     " groups of cores");
    const uint8_t *image = isFirst ? nullptr : artifact.weights();
    if (copyToNodes)
      image = copies.at(group.node).data() + offsetOf(artifact);
    all.push_back(makeEngine(model, std::make_shared<ThreadPool>(group), own,
                             options, draftModel, image));
  }
}
