//===- Groups.h - Options of groups of cores --------------------*- C++ -*-===//

#ifndef QWEN_RUN_GROUPS_H
#define QWEN_RUN_GROUPS_H

#include "CommandLine.h"
#include "engine/CoreGroups.h"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace qwen::run {

/// Whether groups on different NUMA nodes read one copy of the weights.
enum class NumaWeights : uint8_t {
  Share,
  Copy,
  /// Copy if memory of another node is much slower.
  Auto,
};
/// The words of command lines for the values 0, 1, ...
constexpr std::array<std::string_view, 3> wordsOf(NumaWeights /*any*/) {
  return {"share", "copy", "auto"};
}

struct GroupFlags {
  /// Nothing: as many as nodesOf the cores. 1: one engine, whose threads may
  /// run on any core.
  std::optional<int32_t> count = 1;
  NumaWeights weights = NumaWeights::Auto;
};

/// Adds --replicas and --numa.
void addGroups(const Command &command, GroupFlags &flags);

/// The groups of as many cores as `threads` (0: all that this process may use);
/// none for one engine whose threads may run on any core.
std::vector<CoreGroup> chooseGroups(const GroupFlags &flags, int32_t threads);

/// Bytes a second at which cores read memory of a NUMA node.
using NodeSpeedFn =
    std::function<double(const std::vector<int> &cpus, int node)>;

/// How fast the first group reads the slowest other node of the groups, as a
/// part of the speed of its own node; nothing if there is no other node.
std::optional<double> speedOfOtherNodes(std::span<const CoreGroup> groups,
                                        const NodeSpeedFn &speed);

/// Whether --numa auto copies the weights to each node for this
/// speedOfOtherNodes.
bool isMuchSlower(double speedOfOthers);

/// Whether each node of the groups gets a copy of the weights.
bool copiesWeights(NumaWeights weights, std::span<const CoreGroup> groups,
                   const NodeSpeedFn &speed);

} // namespace qwen::run

#endif // QWEN_RUN_GROUPS_H
