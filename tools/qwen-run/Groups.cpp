//===- Groups.cpp - Options of groups of cores ----------------------------===//

#include "Groups.h"

#include "TableOptions.h"
#include "engine/CpuCount.h"
#include "engine/ThreadPool.h"

#include <algorithm>
#include <limits>
#include <set>

using namespace qwen;
using namespace qwen::run;

void qwen::run::addGroups(const Command &command, GroupFlags &flags) {
  static constexpr char kAuto[] = "auto", kName[] = "--replicas";
  command
      .addText(
          kName,
          [&](const std::string &value) {
            flags.count.reset();
            if (value != kAuto)
              flags.count = parseNumber<int32_t>(kName, value, 1,
                                                 ThreadPool::kMaxThreads);
          },
          "Engines, each on a group of the cores of one NUMA node, with "
          "sequences and pages of its own; auto: one for each node")
      .type("INT|auto")
      .suggest({kAuto})
      .defaultText("1");
  addTableOption(command, "--numa", flags.weights, "", 0, 0,
                 "Whether the engines of all NUMA nodes read one copy of the "
                 "weights, or each node gets one; auto: copies if reading "
                 "from another node has less than 0.7 of the speed");
}

std::vector<CoreGroup> qwen::run::chooseGroups(const GroupFlags &flags,
                                               int32_t threads) {
  if (flags.count == 1)
    return {};
  const std::vector<CorePlace> cores =
      corePlaces(affinityCpus(), threads ? threads : ThreadPool::kMaxThreads);
  const int32_t count = flags.count.value_or(nodesOf(cores));
  return count == 1 ? std::vector<CoreGroup>() : coreGroups(cores, count);
}

std::optional<double>
qwen::run::speedOfOtherNodes(std::span<const CoreGroup> groups,
                             const NodeSpeedFn &speed) {
  std::set<int> others;
  for (const CoreGroup &group : groups)
    if (group.node != groups.front().node)
      others.insert(group.node);
  if (others.empty())
    return std::nullopt;
  const std::vector<int> &cpus = groups.front().cpus;
  const double own = speed(cpus, groups.front().node);
  double slowest = std::numeric_limits<double>::infinity();
  for (const int node : others)
    slowest = std::min(slowest, speed(cpus, node));
  return slowest / own;
}

bool qwen::run::isMuchSlower(double speedOfOthers) {
  constexpr double kMuchSlower = 0.7;
  return speedOfOthers < kMuchSlower;
}

bool qwen::run::copiesWeights(NumaWeights weights,
                              std::span<const CoreGroup> groups,
                              const NodeSpeedFn &speed) {
  if (weights != NumaWeights::Auto)
    return weights == NumaWeights::Copy && !groups.empty();
  const std::optional<double> others = speedOfOtherNodes(groups, speed);
  return others && isMuchSlower(*others);
}
