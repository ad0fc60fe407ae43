//===- NumericsExpertsTest.cpp - The choice of experts --------------------===//

#include "NumericsRandom.h"
#include "qwen/Numerics/Kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace qwen;
namespace ref = qwen::numerics;

TEST(ChooseExperts, TakesTheGreatestAndOfEqualOnesTheFirst) {
  const std::vector<float> logits = {1, 3, -0.0f, 3, 0.0f, 3};
  for (const std::vector<int32_t> &needed : {std::vector<int32_t>{1},
                                             {1, 3},
                                             {1, 3, 5},
                                             {0, 1, 3, 5},
                                             {0, 1, 2, 3, 5},
                                             {0, 1, 2, 3, 4, 5}}) {
    std::vector<int32_t> ids(needed.size());
    std::vector<float> p(needed.size());
    EXPECT_EQ(ref::chooseExperts(logits.data(), std::ssize(logits),
                                 std::ssize(ids), ids.data(), p.data()),
              0);
    EXPECT_EQ(ids, needed);
  }
}

TEST(ChooseExperts, GivesProbabilitiesOfDoublePrecision) {
  Random random(11);
  for (const int64_t n : {1, 7, 16, 60, 128}) {
    const std::vector<float> logits = random.values(n, 8);
    std::vector<int32_t> ids(static_cast<size_t>(n));
    std::vector<float> p(static_cast<size_t>(n));
    ASSERT_EQ(ref::chooseExperts(logits.data(), n, n, ids.data(), p.data()), 0);
    double sum = 0;
    for (float logit : logits)
      sum += std::exp(double{logit});
    for (size_t i = 0; i < p.size(); ++i)
      EXPECT_NEAR(p[i], std::exp(double{logits[i]}) / sum, 1e-6);
  }
}

TEST(ChooseExperts, FlagsLogitsThatAreNotFinite) {
  for (float bad : {kInf, -kInf, kNaN}) {
    const std::vector<float> logits = {1, 2, 3, bad, 4};
    std::vector<int32_t> ids(3);
    std::vector<float> p(3);
    EXPECT_EQ(ref::chooseExperts(logits.data(), 5, 3, ids.data(), p.data()), 1);
    EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2}));
  }
}
