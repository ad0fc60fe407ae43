//===- DraftPaceTest.cpp - How many drafts a step runs --------------------===//

#include "engine/DraftPace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

using namespace qwen;

namespace {
/// Machines with a time for each number of rows, and on each of them an answer
/// whose drafts are right with a chance for each place. A gain counts all
/// answers: a single one may lose a step more where a logarithm is rounded
/// otherwise.
class Answering {
public:
  explicit Answering(unsigned count = 20) {
    for (unsigned seed = 0; seed < count; ++seed)
      machines.emplace_back().random.seed(seed);
  }
  /// Runs steps of `others` tokens beside those of an answer, on each machine.
  /// Returns the mean number of drafts of the last half of the steps.
  double run(int steps, int64_t others, const std::vector<double> &seconds,
             double rightChance) {
    double drafts = 0;
    for (Machine &machine : machines)
      drafts += run(machine, steps, others, seconds, rightChance);
    return drafts / static_cast<double>(machines.size());
  }
  /// Seconds of a call of the drafter's own model, which makes one draft, and
  /// of each token that it reads before that.
  double ofCall = 0, ofRead = 0;
  /// The most tokens that it reads. It has read none at first.
  int64_t mostRead = 0;
  /// The most drafts of a step.
  int64_t most = 7;
  /// Another program slows steps by this factor now and then, for about 50 of
  /// them, and all steps vary by this part of their time.
  double slowed = 1, variation = 0.02;
  /// How much faster the answers were than without drafts.
  double gain() { return std::exchange(without, 0) / std::exchange(with, 0); }

private:
  struct Machine {
    DraftPace pace{16, 8};
    DraftShares shares;
    std::mt19937 random;
    int64_t unread = INT32_MAX;
    bool isSlow = false;
  };
  double run(Machine &machine, int steps, int64_t others,
             const std::vector<double> &seconds, double rightChance) {
    auto &[pace, shares, random, unread, isSlow] = machine;
    double drafts = 0;
    for (int i = 0; i < steps; ++i) {
      const int64_t strength = ofCall > 0 ? kModelStrength : 0;
      // A step with drafts leaves two.
      const double behind =
          unread <= 2
              ? 0
              : ofRead * static_cast<double>(std::min(unread, mostRead));
      DraftWish wish{&shares, strength, most, behind};
      pace.choose({&wish, 1}, others + 1, most);
      int64_t right = 0;
      while (right < wish.count && real(random) < rightChance)
        ++right;
      if (wish.count)
        pace.accept(shares, strength, wish.count, right);
      const double taken =
          seconds[static_cast<size_t>(others + 1 + wish.count)];
      if (slowed > 1 && real(random) < 0.02)
        isSlow = !isSlow;
      // Some steps are disturbed.
      const double noise =
          (1 + variation * real(random) + (real(random) < 0.02 ? 3 : 0)) *
          (isSlow ? slowed : 1);
      pace.record(others + 1 + wish.count, taken * noise);
      for (int64_t call = 0; ofCall > 0 && call < wish.count; ++call)
        pace.recordCall(1, ofCall * noise);
      with +=
          ofCall * static_cast<double>(wish.count) + (wish.count ? behind : 0);
      unread = wish.count ? 1 : std::min(unread, mostRead) + 1;
      without += seconds[static_cast<size_t>(others + 1)] *
                 static_cast<double>(right + 1);
      with += taken;
      if (i >= steps / 2)
        drafts += static_cast<double>(wish.count);
    }
    return drafts / (steps - steps / 2);
  }

  std::vector<Machine> machines;
  std::uniform_real_distribution<double> real{0, 1};
  double without = 0, with = 0;
};
} // namespace

/// Seconds of a step of 0, 1, ... rows, `each` more for each row.
static std::vector<double> secondsBy(double each) {
  std::vector<double> seconds(17);
  for (size_t i = 0; i < seconds.size(); ++i)
    seconds[i] = 0.02 * (1 + each * (static_cast<double>(i) - 1));
  return seconds;
}

TEST(DraftPace, RightDraftsFillTheStep) {
  Answering answering;
  EXPECT_GT(answering.run(100, 0, secondsBy(0.05), 1), 6.5);
  EXPECT_GT(answering.gain(), 4);
}

TEST(DraftPace, WrongDraftsCostLittle) {
  for (const double each : {0.01, 0.05, 0.3, 1.0}) {
    Answering answering;
    answering.run(50, 0, secondsBy(each), 0);
    EXPECT_GT(answering.gain(), 0.75) << each;
    answering.run(1000, 0, secondsBy(each), 0);
    EXPECT_GT(answering.gain(), 0.975) << each;
    // It notices that drafts become right.
    answering.run(300, 0, secondsBy(each), 0.9);
    EXPECT_GT(answering.gain(), each < 0.1 ? 1.8 : 0.97) << each;
  }
}

TEST(DraftPace, WrongDraftsCostLittleBesideOtherPrograms) {
  for (const double each : {0.02, 0.08, 0.3}) {
    Answering answering;
    answering.slowed = 1.5;
    answering.variation = 0.15;
    answering.run(50, 0, secondsBy(each), 0);
    answering.gain();
    // Trials become rare, since the measured times may be too short.
    EXPECT_LT(answering.run(1000, 0, secondsBy(each), 0), 0.1) << each;
    EXPECT_GT(answering.gain(), 0.985) << each;
  }
}

TEST(DraftPace, DraftsRunWhereTheirRowsAreCheap) {
  // Each row takes as long as a step of one.
  Answering dear;
  EXPECT_LT(dear.run(400, 0, secondsBy(1), 0.8), 0.15);
  EXPECT_GT(dear.gain(), 0.96);
  // As many as the best fixed number would have, or nearly as good.
  for (const double right : {0.3, 0.5, 0.8}) {
    const std::vector<double> seconds = secondsBy(0.12);
    double best = 1;
    for (int k = 1; k <= 7; ++k)
      best = std::max(best, (1 - std::pow(right, k + 1)) / (1 - right) /
                                (1 + 0.12 * k));
    Answering answering;
    answering.run(1500, 0, seconds, right);
    EXPECT_GT(answering.gain(), 0.93 * best) << right;
  }
  // Beside seven others, a further row needs a second pass over the weights.
  std::vector<double> passes(17, 0.02);
  std::fill(passes.begin() + 9, passes.end(), 0.04);
  Answering beside;
  EXPECT_LT(beside.run(400, 7, passes, 0.8), 0.1);
}

// As texts get longer, and when another program starts.
TEST(DraftPace, FollowsTheMachine) {
  Answering answering;
  std::vector<double> seconds = secondsBy(0.05);
  EXPECT_GT(answering.run(200, 0, seconds, 0.8), 2);
  for (int i = 0; i < 100; ++i) {
    for (double &each : seconds)
      each *= 1.01;
    answering.run(5, 0, seconds, 0.8);
  }
  EXPECT_GT(answering.run(200, 0, seconds, 0.8), 2);
  EXPECT_LT(answering.run(600, 0, secondsBy(1), 0.8), 0.3);
}

// A draft of a model takes a call of that, and a step takes all of them.
TEST(DraftPace, CountsTheCallsOfADrafter) {
  for (const double ofCall : {0.001, 0.006})
    for (const double right : {0.5, 0.8}) {
      double best = 1;
      for (int k = 1; k <= 7; ++k)
        best = std::max(best, (1 - std::pow(right, k + 1)) / (1 - right) /
                                  (1 + k * (0.05 + ofCall / 0.02)));
      Answering answering;
      answering.ofCall = ofCall;
      answering.run(1500, 0, secondsBy(0.05), right);
      EXPECT_GT(answering.gain(), 0.93 * best) << ofCall << " " << right;
    }
  // The mean of 20 varies by a tenth.
  Answering dear(200);
  dear.ofCall = 0.01;
  EXPECT_LT(dear.run(400, 0, secondsBy(0.05), 0.4), 0.1);
  EXPECT_GT(dear.gain(), 0.97);
}

// The first drafts of a model are as many as its usual share lets pay.
TEST(DraftPace, ExpectsAShare) {
  for (const double share : {0.1, 0.8}) {
    DraftPace pace(16, 8);
    pace.expect(share);
    const DraftShares shares;
    for (int i = 0; i < 3; ++i) {
      pace.record(1, 0.02);
      pace.recordCall(1, 0.002);
    }
    DraftWish wish{&shares, kModelStrength, 7};
    pace.choose({&wish, 1}, 1, 7);
    EXPECT_EQ(wish.count > 2, share > 0.5) << wish.count;
  }
}

// Wrong drafts would not pay for it, however often they are tried.
TEST(DraftPace, ReadsATextThatPays) {
  Answering answering;
  answering.ofCall = 0.004;
  answering.ofRead = 0.001;
  answering.mostRead = 100;
  EXPECT_GT(answering.run(200, 0, secondsBy(0.05), 0.8), 1);
  EXPECT_GT(answering.gain(), 1.2);
  Answering dear;
  dear.ofCall = 0.004;
  dear.ofRead = 0.001;
  dear.mostRead = 2000;
  dear.run(100, 0, secondsBy(0.05), 0.8);
  EXPECT_GT(dear.gain(), 0.99);
}

// A long match costs no calls, and a short one is a guess.
TEST(DraftPace, PrefersWhatPromisesMore) {
  DraftPace pace(16, 8);
  const DraftShares shares;
  DraftShares wrong;
  for (int i = 0; i < 3; ++i) {
    pace.record(1, 0.02);
    pace.recordCall(1, 0.002);
  }
  pace.expect(0.7);
  wrong.classes[DraftShares::classOf(kModelStrength)] = {0, 24};
  const auto preferred = [&](int64_t other, const DraftShares &of,
                             double behind) {
    DraftWish wish{&of, kModelStrength, 3, behind};
    wish.other = other;
    pace.prefer({&wish, 1}, 1);
    EXPECT_EQ(std::max(wish.strength, wish.other), kModelStrength);
    return wish.strength;
  };
  EXPECT_EQ(preferred(1, shares, 0), kModelStrength);
  EXPECT_EQ(preferred(30, shares, 0), 30);
  // The model has been wrong, or has much to read.
  EXPECT_EQ(preferred(5, wrong, 0), 5);
  EXPECT_EQ(preferred(5, shares, 4), 5);
  // There is no other.
  DraftWish alone{&wrong, kModelStrength, 3};
  pace.prefer({&alone, 1}, 1);
  EXPECT_EQ(alone.strength, kModelStrength);
}

TEST(DraftPace, LikelierAnswersGetTheRows) {
  DraftPace pace(16, 4);
  std::array<DraftShares, 2> shares;
  for (int i = 0; i < 3; ++i)
    pace.record(2, 0.02);
  for (int i = 0; i < 30; ++i) {
    pace.accept(shares[0], 3, 1, 0);
    pace.accept(shares[1], 3, 4, 4);
  }
  std::array wishes = {DraftWish{shares.data(), 3, 4},
                       DraftWish{&shares[1], 3, 4}};
  pace.choose(wishes, 2, 4);
  EXPECT_EQ(wishes[0].count, 0);
  EXPECT_EQ(wishes[1].count, 4);
  EXPECT_LT(pace.chance(shares[0], 3), 0.2);
  EXPECT_GT(pace.chance(shares[1], 5), 0.8);
  // What follows a wrong draft is not counted.
  EXPECT_EQ(shares[0].classes[4].all, 0);
  // Where few answers may have drafts, the likeliest have them.
  for (int i = 0; i < 30; ++i)
    pace.accept(shares[0], 3, 1, 1);
  wishes[1].most = 2;
  for (const int64_t tracks : {2, 1, 0}) {
    for (DraftWish &wish : wishes)
      wish.count = 0;
    pace.choose(wishes, 2, 4, tracks);
    EXPECT_EQ(wishes[0].count > 0, tracks > 1);
    EXPECT_EQ(wishes[1].count > 0, tracks > 0);
  }
  // There may be no room.
  wishes[1].count = 0;
  pace.choose(wishes, 2, 0);
  EXPECT_EQ(wishes[1].count, 0);
  pace.choose({}, 0, 4);
}

//===----------------------------------------------------------------------===//
// A drafter near break-even
//===----------------------------------------------------------------------===//

namespace {
/// Five of the 24 layers of Qwen2.5-0.5B draft for it, with a head of 32,768
/// rows, where memory is the limit: a draft pays if it is right in one case of
/// four.
class NearBreakEven : public Answering {
public:
  NearBreakEven() {
    ofCall = 0.21 * 0.02;
    ofRead = 0.03 * 0.02;
    mostRead = 64;
    most = 3;
  }
  double run(int steps, double rightChance) {
    return Answering::run(steps, 0, secondsBy(0.04), rightChance);
  }
  /// The gain of the best fixed number of drafts.
  double bound(double rightChance) const {
    double best = 1, tokens = 1, next = 1;
    for (int64_t k = 1; k <= most; ++k) {
      next *= rightChance;
      tokens += next;
      best = std::max(best, tokens / (1 + 0.25 * static_cast<double>(k)));
    }
    return best;
  }
};
} // namespace

TEST(DraftPace, FindsWhatPaysLittle) {
  for (const double right : {0.4, 0.5, 0.65, 0.8, 1.0}) {
    NearBreakEven answering;
    answering.run(300, right);
    EXPECT_GT(answering.gain(), 0.93 * answering.bound(right)) << right;
  }
  NearBreakEven answering;
  EXPECT_NEAR(answering.bound(0.5), 1.2, 1e-9);
  answering.run(300, 0.5);
  EXPECT_GT(answering.gain(), 1.12);
}

TEST(DraftPace, LosesLittle) {
  for (const double right : {0.0, 0.1, 0.2, 0.3}) {
    NearBreakEven answering;
    answering.run(50, right);
    answering.gain();
    answering.run(350, right);
    EXPECT_GT(answering.gain(), 0.98) << right;
  }
}

// Texts change.
TEST(DraftPace, FollowsTheText) {
  for (const double right : {0.5, 0.65, 0.8, 1.0}) {
    NearBreakEven answering;
    answering.run(300, 0);
    answering.gain();
    // By the drafts that now and then are tried.
    answering.run(1000, right);
    EXPECT_GT(answering.gain(), 0.93 * answering.bound(right)) << right;
    answering.run(1000, 0);
    EXPECT_GT(answering.gain(), right < 1 ? 0.97 : 0.95) << right;
  }
}
