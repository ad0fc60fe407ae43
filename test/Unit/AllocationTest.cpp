//===- AllocationTest.cpp - The least loss within a limit -----------------===//

#include "qwen/Quantizers/Allocation.h"

#include "NumericsRandom.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen;

/// The least sum of losses within the limit, of all combinations.
static std::optional<double>
leastLoss(const std::vector<AllocationGroup> &groups, double limit) {
  std::optional<double> least;
  std::vector<size_t> choices(groups.size());
  for (;;) {
    const AllocationChoice sum = sumOf(groups, choices);
    if (sum.cost <= limit && (!least || sum.loss < *least))
      least = sum.loss;
    size_t i = 0;
    while (i < groups.size() && ++choices[i] == groups[i].size())
      choices[i++] = 0;
    if (i == groups.size())
      return least;
  }
}

/// Groups as matrices are: more bits, less loss.
static std::vector<AllocationGroup> randomGroups(size_t count, size_t choices,
                                                 Random &random) {
  std::vector<AllocationGroup> groups(count);
  for (AllocationGroup &group : groups) {
    const double size = std::exp(2.0 * random.value()),
                 weight = std::exp(3.0 * random.value());
    for (size_t i = 0; i < choices; ++i) {
      const double bits = 4.25 + 0.7 * static_cast<double>(i);
      group.push_back({weight * size * std::exp2(-2 * bits) *
                           std::exp(0.3 * random.value()),
                       size * bits});
    }
  }
  return groups;
}

TEST(Allocation, IsTheBestOfAllCombinations) {
  Random random(3);
  for (int problem = 0; problem < 40; ++problem) {
    const auto groups = randomGroups(6, 4, random);
    for (double bits : {4.2, 4.3, 4.7, 5.1, 6.0, 9.0}) {
      double limit = 0;
      for (const AllocationGroup &group : groups)
        limit += group.front().cost / 4.25 * bits;
      const auto found = allocate(groups, limit);
      const std::optional<double> least = leastLoss(groups, limit);
      ASSERT_EQ(found.has_value(), least.has_value()) << problem << " " << bits;
      if (!found)
        continue;
      EXPECT_LE(sumOf(groups, *found).cost, limit);
      EXPECT_DOUBLE_EQ(sumOf(groups, *found).loss, *least)
          << problem << " " << bits;
    }
  }
}

TEST(Allocation, FindsTheLeastCostOfALoss) {
  Random random(5);
  const auto groups = randomGroups(5, 4, random);
  const auto costs = exchanged(groups);
  double most = 0;
  for (const AllocationGroup &group : groups)
    most += group.front().loss;
  for (double part : {0.1, 0.4, 0.9}) {
    const auto found = allocate(costs, part * most);
    ASSERT_TRUE(found);
    EXPECT_LE(sumOf(groups, *found).loss, part * most);
    EXPECT_DOUBLE_EQ(sumOf(groups, *found).cost,
                     *leastLoss(costs, part * most));
  }
  // No format loses so little.
  EXPECT_FALSE(allocate(costs, 0));
}

TEST(Allocation, TakesNoLongerForLargeModels) {
  Random random(7);
  const auto groups = randomGroups(400, 7, random);
  double limit = 0;
  for (const AllocationGroup &group : groups)
    limit += group[1].cost;
  const auto found = allocate(groups, limit);
  ASSERT_TRUE(found);
  EXPECT_LE(sumOf(groups, *found).cost, limit);
  // One choice for all is such an allocation.
  EXPECT_LT(sumOf(groups, *found).loss,
            0.9 * sumOf(groups, std::vector<size_t>(400, 1)).loss);
  EXPECT_EQ(allocate(groups, limit), found);
}

TEST(Allocation, HasGroupsWithoutAChoice) {
  const std::vector<AllocationGroup> groups = {{{1, 2}}, {{3, 4}, {3, 2}}};
  EXPECT_EQ(allocate(groups, 4), (std::vector<size_t>{0, 1}));
  EXPECT_FALSE(allocate(groups, 3.9));
  EXPECT_EQ(allocate({}, 0), std::vector<size_t>());
}
