//===- Allocation.h - The least loss within a limit -------------*- C++ -*-===//
//
// Each of some groups takes one of its choices, which has a loss and a cost.
// Which choices have the least loss, if the costs may not exceed a limit? This
// is the multiple-choice knapsack problem: a Lagrange multiplier prices the
// costs, and a search of branches closes what it leaves open.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_QUANTIZERS_ALLOCATION_H
#define QWEN_QUANTIZERS_ALLOCATION_H

#include <cstddef>
#include <optional>
#include <vector>

namespace qwen {

/// Neither number is negative.
struct AllocationChoice {
  double loss, cost;
};
/// The choices of a group, at least one.
using AllocationGroup = std::vector<AllocationChoice>;

/// The number of the choice of each group whose losses have the least sum,
/// while the sum of costs is at most `limit`; nothing if there are none. Of
/// large problems, the sum of losses may be above the least by less than one
/// group can change. The same groups give the same choices.
std::optional<std::vector<size_t>>
allocate(const std::vector<AllocationGroup> &groups, double limit);

/// The sums over the groups of their choices.
AllocationChoice sumOf(const std::vector<AllocationGroup> &groups,
                       const std::vector<size_t> &choices);

/// The same groups with losses and costs exchanged: `allocate` then finds the
/// least cost within a limit of losses.
std::vector<AllocationGroup> exchanged(std::vector<AllocationGroup> groups);

} // namespace qwen

#endif // QWEN_QUANTIZERS_ALLOCATION_H
