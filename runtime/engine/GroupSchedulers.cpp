//===- GroupSchedulers.cpp - Schedulers of groups of cores ----------------===//

#include "engine/GroupSchedulers.h"

#include <algorithm>
#include <tuple>

using namespace qwen;

GroupSchedulers::GroupSchedulers(std::span<Engine *const> engines,
                                 const SchedulerOptions &options) {
  SchedulerOptions own = options;
  own.queue = (options.queue + engines.size() - 1) / engines.size();
  for (Engine *engine : engines)
    groups.push_back(std::make_unique<Group>(*engine, own));
}

Scheduler &GroupSchedulers::choose(std::span<const int32_t> ids,
                                   const RootRef &root) {
  if (groups.size() == 1)
    return groups.front()->scheduler;
  const std::vector<uint64_t> pages = pageHashes(ids, root);
  std::vector<size_t> loads;
  loads.reserve(groups.size());
  for (const auto &group : groups)
    loads.push_back(group->scheduler.load());
  const size_t least = std::ranges::min(loads);
  const std::lock_guard lock(mutex);
  size_t best = 0;
  std::tuple<bool, size_t, size_t> bestRank = {};
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto sequences =
        static_cast<size_t>(groups[i]->engine.state().maxSequences());
    // A known beginning is worth no place behind others.
    const bool isOpen = loads[i] < std::max(sequences, least + 1);
    const std::tuple rank = {isOpen, groups[i]->known.find(pages),
                             SIZE_MAX - loads[i]};
    if (rank > bestRank) {
      bestRank = rank;
      best = i;
    }
  }
  groups[best]->known.add(pages);
  return groups[best]->scheduler;
}

SchedulerCounts GroupSchedulers::counts() const {
  SchedulerCounts sum;
  for (const auto &group : groups)
    sum += group->scheduler.counts();
  return sum;
}

int64_t GroupSchedulers::pages() const {
  int64_t sum = 0;
  for (const auto &group : groups)
    sum += group->engine.state().pages();
  return sum;
}
