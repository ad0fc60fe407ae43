//===- EngineGroups.h - An engine on each group of cores --------*- C++ -*-===//

#ifndef QWEN_RUNTIME_MODEL_ENGINEGROUPS_H
#define QWEN_RUNTIME_MODEL_ENGINEGROUPS_H

#include "engine/CoreGroups.h"
#include "model/MakeEngine.h"

#include <map>
#include <memory>
#include <vector>

namespace qwen {

/// Engines of one model on groups of cores.
class EngineGroups {
public:
  /// One engine, whose threads may run on any core.
  explicit EngineGroups(std::unique_ptr<Engine> engine) {
    all.push_back(std::move(engine));
  }
  /// Each engine has the sequences and pages of `options`, and an equal part of
  /// what `budget` has left. They read one mapping of the file or, if
  /// `copyToNodes`, a copy of the weights in each of their NUMA nodes, which is
  /// checked unless `options` say that nothing is. `model` must outlive the
  /// engines; makeEngine describes the others. Throws Error as makeEngine does.
  EngineGroups(const Model &model, std::span<const CoreGroup> groups,
               const std::shared_ptr<MemoryBudget> &budget,
               const EngineOptions &options, const std::string &draftModel,
               bool copyToNodes);

  /// An engine of each group, in their order.
  std::span<const std::unique_ptr<Engine>> engines() const { return all; }

private:
  /// A copy of the weights by its node.
  std::map<int, Mapping> copies;
  MemoryLease copyLease;
  std::vector<std::unique_ptr<Engine>> all;
};

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_ENGINEGROUPS_H
