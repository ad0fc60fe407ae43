//===- StepPaceTest.cpp - The length of steps, and logprobs ---------------===//

#include "engine/StepPace.h"
#include "engine/Logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace qwen;

// A machine reads weights for `base` seconds and needs `each` for a token; one
// of the two hides the other.
TEST(StepPace, KeepsStepsShort) {
  for (double base : {1e-4, 3e-3, 0.1})
    for (double each : {1e-5, 1e-3, 4e-2}) {
      const auto seconds = [&](double tokens) {
        return std::max(base, each * tokens);
      };
      StepPace pace(64, 512);
      for (int step = 0; step < 20; ++step) {
        const int64_t prompt = pace.promptTokens(0);
        const double taken = seconds(static_cast<double>(prompt));
        EXPECT_GE(prompt, pace.leastPrompt());
        EXPECT_TRUE(taken <= 0.5 || prompt == pace.leastPrompt() || step == 0)
            << taken;
        pace.record(0, prompt, taken);
      }
      // By now the pieces are as long as they may be.
      const double most = std::min(512., std::floor(0.4 / each));
      EXPECT_GE(static_cast<double>(pace.promptTokens(0)), most * 0.99);

      // The first step with others has no prompt tokens: it is measured.
      for (int64_t decoding : {8, 8, 8, 1, 3, 33}) {
        int64_t greatest = 0;
        for (int step = 0; step < 40; ++step) {
          const int64_t prompt = pace.promptTokens(decoding);
          const double taken = seconds(static_cast<double>(decoding) +
                                       static_cast<double>(prompt));
          EXPECT_TRUE(prompt == pace.leastPrompt() ||
                      taken <= 1.61 * seconds(static_cast<double>(decoding)))
              << base << " " << each << " " << decoding << " " << prompt;
          pace.record(decoding, prompt, taken);
          greatest = std::max(greatest, prompt);
        }
        EXPECT_GE(greatest, pace.leastPrompt());
      }
      // Where weights cost most, many tokens fit.
      if (base == 0.1 && each == 1e-3)
        EXPECT_GE(pace.promptTokens(1), 100);
    }
}

// Each token chooses 8 of 128 experts, which are read once for all tokens.
TEST(StepPace, ExpertsRunWholePromptsAlone) {
  const auto seconds = [](double tokens) {
    return 0.1 + 0.8 * (1 - std::pow(1 - 8. / 128, tokens)) + 5e-3 * tokens;
  };
  StepPace pace(64, 512, /*hasExperts=*/true);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(pace.promptTokens(0), 512);
    pace.record(0, 512, seconds(512));
  }
  // What a token of 512 costs says nothing of the next steps.
  for (int64_t decoding : {1, 8, 2}) {
    const double alone = seconds(static_cast<double>(decoding));
    for (int step = 0; step < 40; ++step) {
      const int64_t prompt = pace.promptTokens(decoding);
      const double taken =
          seconds(static_cast<double>(decoding) + static_cast<double>(prompt));
      EXPECT_LE(taken, 2 * alone)
          << decoding << ", step " << step << ": " << taken / alone;
      pace.record(decoding, prompt, taken);
    }
  }
}

TEST(StepPace, LeavesRoomForTimesThatVary) {
  std::mt19937_64 random(1);
  StepPace pace(8, 512);
  constexpr double kAlone = 5e-3, kEach = 1e-4;
  std::vector<double> slowdowns;
  while (slowdowns.size() < 1000) {
    const int64_t prompt = pace.promptTokens(1);
    const double noise = 0.9 + 0.002 * static_cast<double>(random() % 100);
    const double taken = (kAlone + kEach * static_cast<double>(prompt)) * noise;
    pace.record(1, prompt, taken);
    if (prompt)
      slowdowns.push_back(taken / kAlone);
  }
  std::ranges::nth_element(slowdowns, slowdowns.begin() + 500);
  EXPECT_LE(slowdowns[500], 1.7);
  EXPECT_GE(slowdowns[500], 1.4);
}

TEST(StepPace, MeasuresAgain) {
  StepPace pace(4, 512);
  EXPECT_EQ(pace.promptTokens(2), 0);
  pace.record(2, 0, 1);
  int64_t steps = 0;
  for (; pace.promptTokens(3) != 0; ++steps)
    pace.record(3, pace.promptTokens(3), 1.5);
  EXPECT_EQ(steps, 32);
}

TEST(Logprobs, OrderTokensAndSumToOne) {
  const std::vector<float> logits = {1, 3, -2, 3, 0.5f, -INFINITY};
  double sum = 0;
  for (float logit : logits)
    sum += std::exp(logit - logSumExp(logits));
  EXPECT_NEAR(sum, 1, 1e-12);
  std::vector<int32_t> ids;
  for (size_t count : {0, 1, 3, 6, 9}) {
    topTokens(logits, count, ids);
    const std::vector<int32_t> all = {1, 3, 0, 4, 2, 5};
    EXPECT_EQ(ids, std::vector<int32_t>(
                       all.begin(), all.begin() + static_cast<int64_t>(std::min(
                                                      count, size_t{6}))));
  }
}
