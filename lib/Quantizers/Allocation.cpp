//===- Allocation.cpp - The least loss within a limit ---------------------===//

#include "qwen/Quantizers/Allocation.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace qwen;

/// Halvings of the interval of the multiplier: all bits of a double.
static constexpr int kHalvings = 200;
/// Nodes of the search: enough for all optima of some dozens of groups.
static constexpr size_t kMostNodes = size_t{1} << 18;

AllocationChoice qwen::sumOf(const std::vector<AllocationGroup> &groups,
                             const std::vector<size_t> &choices) {
  AllocationChoice sum = {0, 0};
  for (size_t i = 0; i < groups.size(); ++i) {
    sum.loss += groups[i][choices[i]].loss;
    sum.cost += groups[i][choices[i]].cost;
  }
  return sum;
}

std::vector<AllocationGroup>
qwen::exchanged(std::vector<AllocationGroup> groups) {
  for (AllocationGroup &group : groups)
    for (AllocationChoice &choice : group)
      std::swap(choice.loss, choice.cost);
  return groups;
}

/// The choices of the least sum of loss and `price` times cost; of equals, the
/// cheaper one.
static std::vector<size_t> atPrice(const std::vector<AllocationGroup> &groups,
                                   double price) {
  std::vector<size_t> choices;
  choices.reserve(groups.size());
  for (const AllocationGroup &group : groups) {
    const auto rank = [&](const AllocationChoice &choice) {
      return std::pair(choice.loss + price * choice.cost, choice.cost);
    };
    choices.push_back(static_cast<size_t>(
        std::ranges::min_element(group, {}, rank) - group.begin()));
  }
  return choices;
}

static std::vector<size_t>
cheapest(const std::vector<AllocationGroup> &groups) {
  std::vector<size_t> choices;
  choices.reserve(groups.size());
  for (const AllocationGroup &group : groups)
    choices.push_back(static_cast<size_t>(
        std::ranges::min_element(group, {},
                                 [](const AllocationChoice &choice) {
                                   return std::pair(choice.cost, choice.loss);
                                 }) -
        group.begin()));
  return choices;
}

namespace {
/// A search of branches, one group after another, without those whose losses
/// cannot be below the best at the price.
class BranchSearch {
public:
  BranchSearch(const std::vector<AllocationGroup> &groups, double limit,
               double price, std::vector<size_t> first)
      : groups(groups), limit(limit), price(price), best(std::move(first)),
        least(sumOf(groups, best).loss), choices(groups.size()) {
    order.resize(groups.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // Groups whose choices differ most are decided first.
    std::vector<double> spreads;
    spreads.reserve(groups.size());
    for (const AllocationGroup &group : groups) {
      const auto [low, high] =
          std::ranges::minmax(group, {}, [](const AllocationChoice &choice) {
            return choice.cost;
          });
      spreads.push_back(high.cost - low.cost);
    }
    std::ranges::sort(order, {}, [&](size_t group) {
      return std::pair(-spreads[group], group);
    });
    // What the groups behind a place add at least.
    priced.resize(groups.size() + 1);
    costs.resize(groups.size() + 1);
    for (size_t i = groups.size(); i-- > 0;) {
      double rank = std::numeric_limits<double>::infinity(), cost = rank;
      for (const AllocationChoice &choice : groups[order[i]]) {
        rank = std::min(rank, choice.loss + price * choice.cost);
        cost = std::min(cost, choice.cost);
      }
      priced[i] = priced[i + 1] + rank;
      costs[i] = costs[i + 1] + cost;
    }
  }

  std::vector<size_t> run() {
    descend(0, {0, 0});
    return best;
  }

private:
  void descend(size_t place, AllocationChoice sum) {
    if (++nodes > kMostNodes)
      return;
    if (place == groups.size()) {
      // The price of what is left of the limit is in the bound, not in this.
      if (sum.loss < least) {
        least = sum.loss;
        best = choices;
      }
      return;
    }
    const AllocationGroup &group = groups[order[place]];
    std::vector<size_t> turns(group.size());
    std::iota(turns.begin(), turns.end(), size_t{0});
    std::ranges::sort(turns, {}, [&](size_t i) {
      return std::pair(group[i].loss + price * group[i].cost, i);
    });
    for (size_t turn : turns) {
      const AllocationChoice next = {sum.loss + group[turn].loss,
                                     sum.cost + group[turn].cost};
      if (next.cost + costs[place + 1] > limit ||
          next.loss + price * (next.cost - limit) + priced[place + 1] >= least)
        continue;
      choices[order[place]] = turn;
      descend(place + 1, next);
    }
  }

  const std::vector<AllocationGroup> &groups;
  const double limit, price;
  std::vector<size_t> best;
  double least;
  std::vector<size_t> order, choices;
  /// By place in `order`, over the groups from there on.
  std::vector<double> priced, costs;
  size_t nodes = 0;
};
} // namespace

/// Takes, one after another, the change of a group that lowers the loss most
/// for its cost and fits.
static void fill(const std::vector<AllocationGroup> &groups, double limit,
                 std::vector<size_t> &choices) {
  double cost = sumOf(groups, choices).cost;
  for (;;) {
    double most = 0;
    std::optional<std::pair<size_t, size_t>> change;
    for (size_t i = 0; i < groups.size(); ++i)
      for (size_t j = 0; j < groups[i].size(); ++j) {
        const AllocationChoice &from = groups[i][choices[i]],
                               &to = groups[i][j];
        const double gain = from.loss - to.loss, more = to.cost - from.cost;
        if (gain <= 0 || cost + more > limit)
          continue;
        const double rank =
            more > 0 ? gain / more : std::numeric_limits<double>::infinity();
        if (rank > most) {
          most = rank;
          change = {i, j};
        }
      }
    if (!change)
      return;
    const auto [group, choice] = *change;
    cost += groups[group][choice].cost - groups[group][choices[group]].cost;
    choices[group] = choice;
  }
}

std::optional<std::vector<size_t>>
qwen::allocate(const std::vector<AllocationGroup> &groups, double limit) {
  std::vector<size_t> choices = cheapest(groups);
  const AllocationChoice least = sumOf(groups, choices);
  if (least.cost > limit)
    return std::nullopt;
  // At this price nothing is worth more than the cheapest choices.
  double below = 0, above = 1;
  while (sumOf(groups, atPrice(groups, above)).cost > limit)
    above *= 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (below + above) / 2;
    (sumOf(groups, atPrice(groups, middle)).cost > limit ? below : above) =
        middle;
  }
  choices = atPrice(groups, above);
  fill(groups, limit, choices);
  return BranchSearch(groups, limit, above, std::move(choices)).run();
}
