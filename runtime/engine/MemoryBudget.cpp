//===- MemoryBudget.cpp - Memory that the engines of a process share ------===//

#include "engine/MemoryBudget.h"

#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Error.h"

#include <functional>
#include <numeric>

using namespace qwen;

MemoryLease &MemoryLease::operator=(MemoryLease &&other) noexcept {
  std::swap(budget, other.budget);
  std::swap(granted, other.granted);
  std::swap(reclaimable, other.reclaimable);
  return *this;
}

MemoryLease::~MemoryLease() {
  if (budget)
    budget->giveBack(*this);
}

uint64_t MemoryLease::bytes() const {
  return std::accumulate(granted.begin(), granted.end(), uint64_t{0});
}

MemoryBudget::MemoryBudget(const std::string &root) {
  const std::optional<uint64_t> group = controlGroupMemory(root),
                                machine = machineMemory(root);
  const bool isGroup = group && *group <= machine.value_or(*group);
  machineLimit = isGroup ? *group : machine.value_or(INT64_MAX);
  machineSource = isGroup ? "its control group allows" : "this machine has";
  limit = machineLimit;
  source = machineSource;
}

void MemoryBudget::limitTo(uint64_t bytes, const std::string &name) {
  const std::lock_guard lock(mutex);
  const bool isLess = bytes < machineLimit;
  limit = isLess ? bytes : machineLimit;
  source = isLess ? name + " allows" : machineSource;
}

/// The least bytes of all needs, and a list of them for errors.
static std::pair<uint64_t, std::string>
leastOf(std::span<const MemoryNeed> needs) {
  uint64_t sum = 0;
  std::string list;
  for (const MemoryNeed &need : needs) {
    if (__builtin_add_overflow(sum, need.least, &sum))
      sum = UINT64_MAX;
    if (need.least)
      list += (list.empty() ? "" : ", ") +
              std::string(kMemoryUseWords[static_cast<size_t>(need.use)]) +
              " " + std::to_string(need.least);
  }
  return {sum, list};
}

MemoryLease MemoryBudget::take(const std::string &name,
                               std::span<const MemoryNeed> needs) {
  const std::lock_guard lock(mutex);
  const auto [least, list] = leastOf(needs);
  // What is left with and without the memory of weights.
  uint64_t most = without(taken - reclaimable), left = without(taken);
  if (least > most)
    throw Error(name + " needs at least " + std::to_string(least) +
                    " bytes of memory (" + list + ") when " + describeLimit(),
                ErrorKind::NoMemory);
  most -= least;
  left -= std::min(left, least);
  MemoryLease lease;
  lease.budget = shared_from_this();
  for (const MemoryNeed &need : needs) {
    const uint64_t room = need.displacesWeights ? most : left;
    uint64_t more = std::min(need.bytes - need.least, room / need.divisor);
    more -= more % need.unit;
    if (need.use == MemoryUse::Weights)
      lease.reclaimable += more;
    else
      most -= more;
    left -= std::min(left, more);
    lease.granted[static_cast<size_t>(need.use)] += need.least + more;
  }
  taken += lease.bytes();
  reclaimable += lease.reclaimable;
  return lease;
}

void MemoryBudget::giveBack(const MemoryLease &lease) {
  const std::lock_guard lock(mutex);
  taken -= lease.bytes();
  reclaimable -= lease.reclaimable;
}

uint64_t MemoryBudget::free() const {
  const std::lock_guard lock(mutex);
  return without(taken);
}

std::string MemoryBudget::describe() const {
  const std::lock_guard lock(mutex);
  return describeLimit();
}

std::string MemoryBudget::describeLimit() const {
  const uint64_t others = taken - reclaimable;
  return source + " " + std::to_string(limit) + " bytes" +
         (others ? " and other models and caches have " + std::to_string(others)
                 : "");
}
