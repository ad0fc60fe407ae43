//===- Groups.cpp - Options of groups of cores ----------------------------===//

#include "Groups.h"

#include "TableOptions.h"
#include "engine/CpuCount.h"
#include "engine/ThreadPool.h"

#include <algorithm>

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

bool qwen::run::copiesWeights(NumaWeights weights,
                              std::span<const CoreGroup> groups,
                              const NodeSpeedFn &speed) {
  constexpr double kMuchSlower = 0.7;
  const auto isOther = [&](const CoreGroup &group) {
    return group.node != groups.front().node;
  };
  if (weights != NumaWeights::Auto)
    return weights == NumaWeights::Copy && !groups.empty();
  if (std::ranges::none_of(groups, isOther))
    return false;
  const std::vector<int> &cpus = groups.front().cpus;
  const double own = speed(cpus, groups.front().node);
  return std::ranges::any_of(groups, [&](const CoreGroup &group) {
    return isOther(group) && speed(cpus, group.node) < kMuchSlower * own;
  });
}
