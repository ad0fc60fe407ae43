//===- LookupTest.cpp - Drafts from earlier places of a text, and how many ===//

#include "DrafterTest.h"
#include "engine/drafters/SuffixAutomaton.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace qwen;
using namespace qwen::test;

//===----------------------------------------------------------------------===//
// SuffixAutomaton
//===----------------------------------------------------------------------===//

/// The longest suffix that stands earlier, at its most recent place.
static SuffixAutomaton::Match findSuffix(std::span<const int32_t> text) {
  SuffixAutomaton::Match best;
  for (size_t end = 1; end < text.size(); ++end) {
    size_t length = 0;
    while (length < end &&
           text[end - 1 - length] == text[text.size() - 1 - length])
      ++length;
    if (length && length >= best.length)
      best = {length, end};
  }
  return best;
}

TEST(SuffixAutomaton, FindsTheLongestSuffixAtItsLastPlace) {
  std::mt19937 random(3);
  for (const int32_t kinds : {1, 2, 3, 7, 50}) {
    // Of one token, more suffixes than are updated end at each place.
    const size_t size = kinds == 1 ? 30 : 300;
    SuffixAutomaton automaton(size);
    EXPECT_EQ(automaton.match().length, 0U);
    for (int round = 0; round < 2; ++round) {
      std::vector<int32_t> text;
      while (text.size() < size) {
        // Text that is copied, and text that is not.
        const size_t from = random() % (text.size() + 1);
        for (size_t i = from; i < from + random() % 12; ++i)
          text.push_back(i < text.size()
                             ? text[i]
                             : static_cast<int32_t>(random()) % kinds);
        text.push_back(static_cast<int32_t>(random() % 50) % kinds);
      }
      text.resize(size);
      for (size_t i = 0; i < size; ++i) {
        automaton.append(text[i]);
        const auto expected = findSuffix(std::span(text).first(i + 1));
        ASSERT_EQ(automaton.match().length, expected.length) << kinds;
        ASSERT_EQ(automaton.match().end, expected.end) << kinds << " at " << i;
      }
      EXPECT_EQ(automaton.size(), size);
      automaton.clear();
      EXPECT_EQ(automaton.match().length, 0U);
    }
  }
}

// Texts with the most states and edges, for its memory, and deep suffixes.
TEST(SuffixAutomaton, HasRoomForEachText) {
  constexpr size_t size = 20000;
  for (int kind = 0; kind < 4; ++kind) {
    SuffixAutomaton automaton(size);
    for (size_t i = 0; i < size; ++i)
      automaton.append(kind == 0   ? 7
                       : kind == 1 ? static_cast<int32_t>(i == 0 || i % 2)
                       : kind == 2
                           ? static_cast<int32_t>(i < size / 2 ? 1 : i % 2)
                           : static_cast<int32_t>(i * i % 151643));
    EXPECT_EQ(automaton.size(), size);
    if (kind == 0)
      EXPECT_EQ(automaton.match().end, size - 1);
  }
  SuffixAutomaton none(0);
  EXPECT_EQ(none.match().length, 0U);
}

//===----------------------------------------------------------------------===//
// DraftPace
//===----------------------------------------------------------------------===//

namespace {
/// Machines with a time for each number of rows, and on each of them an answer
/// whose drafts are right with a chance for each place. A gain counts all
/// answers: a single one may lose a step more where a logarithm is rounded
/// otherwise.
class Answering {
public:
  Answering() {
    for (unsigned seed = 0; seed < 20; ++seed)
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
  /// of the text that it must read before its first one.
  double ofCall = 0, behind = 0;
  /// How much faster the answers were than without drafts.
  double gain() { return std::exchange(without, 0) / std::exchange(with, 0); }

private:
  struct Machine {
    DraftPace pace{16, 8};
    DraftShares shares;
    std::mt19937 random;
    bool hasRead = false;
  };
  double run(Machine &machine, int steps, int64_t others,
             const std::vector<double> &seconds, double rightChance) {
    auto &[pace, shares, random, hasRead] = machine;
    double drafts = 0;
    for (int i = 0; i < steps; ++i) {
      const int64_t strength = ofCall > 0 ? kModelStrength : 0;
      DraftWish wish{&shares, strength, 7, hasRead ? 0 : behind};
      pace.choose({&wish, 1}, others + 1, 7);
      int64_t right = 0;
      while (right < wish.count && real(random) < rightChance)
        ++right;
      if (wish.count)
        pace.accept(shares, strength, wish.count, right);
      const double taken =
          seconds[static_cast<size_t>(others + 1 + wish.count)];
      // Some steps are disturbed.
      const double noise =
          1 + 0.02 * real(random) + (real(random) < 0.02 ? 3 : 0);
      pace.record(others + 1 + wish.count, taken * noise);
      for (int64_t call = 0; ofCall > 0 && call < wish.count; ++call)
        pace.recordCall(1, ofCall * noise);
      with += ofCall * static_cast<double>(wish.count);
      if (wish.count && !std::exchange(hasRead, true))
        with += behind;
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

TEST(DraftPace, DraftsRunWhereTheirRowsAreCheap) {
  // Each row takes as long as a step of one.
  Answering dear;
  EXPECT_LT(dear.run(400, 0, secondsBy(1), 0.8), 0.1);
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
  Answering dear;
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
  answering.behind = 0.1;
  EXPECT_GT(answering.run(200, 0, secondsBy(0.05), 0.8), 1);
  EXPECT_GT(answering.gain(), 1.2);
  Answering dear;
  dear.ofCall = 0.004;
  dear.behind = 2;
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
  // There may be no room.
  wishes[1].count = 0;
  pace.choose(wishes, 2, 0);
  EXPECT_EQ(wishes[1].count, 0);
  pace.choose({}, 0, 4);
}

//===----------------------------------------------------------------------===//
// Lookup
//===----------------------------------------------------------------------===//

namespace {
class LookupTest : public testing::Test {
protected:
  /// Answers `prompt` with `answer`, with `drafts` of each step.
  void replay(const std::vector<int32_t> &prompt,
              const std::vector<int32_t> &answer, int64_t drafts) {
    Manifest manifest =
        hashManifest(std::ssize(prompt) + std::ssize(answer) + 64, 512);
    manifest.programs[0].limits.rows = 16;
    ThreadPool pool{1};
    Engine engine(manifest, nullptr, {hashForward}, pool,
                  {.speculate = Speculate::Lookup});
    Batcher batcher(engine, {.paced = false, .drafts = drafts});
    Request request;
    request.prompt.ids = prompt;
    request.maxTokens = std::ssize(answer);
    request.onDraw = [&](std::span<const float>, int64_t position) {
      return answer[static_cast<size_t>(position - std::ssize(prompt))];
    };
    std::vector<int32_t> got;
    request.onToken = [&](const TokenEvent &event) {
      got.push_back(event.id);
      return true;
    };
    request.onEnd = [&](const Ending &end) { ending = end; };
    batcher.add(std::make_unique<Job>(std::move(request), 1, manifest.model));
    while (!batcher.isIdle())
      batcher.step();
    EXPECT_EQ(got, answer);
    counts = batcher.counts();
  }

  std::optional<Ending> ending;
  BatcherCounts counts;
};
} // namespace

TEST_F(LookupTest, CopiesWhatFollowed) {
  // No token comes twice, so a match is a copy.
  std::vector<int32_t> prompt(36);
  for (int32_t i = 0; i < 36; ++i)
    prompt[static_cast<size_t>(i)] = i;
  const std::vector<int32_t> answer(prompt.begin() + 5, prompt.begin() + 30);
  replay(prompt, answer, 4);
  // The last token of the prompt stands nowhere else: the first step of the
  // answer has no drafts. The rest takes five tokens a step.
  EXPECT_EQ(counts.drawnTokens, 25);
  EXPECT_EQ(counts.drafts, 5);
  EXPECT_EQ(counts.draftTokens, 19);
  EXPECT_EQ(counts.acceptedTokens, 19);
  EXPECT_EQ(ending->draftTokens, 19);
  EXPECT_EQ(ending->acceptedTokens, 19);
  // The earlier place runs into the drafts.
  replay({1, 2, 3}, std::vector<int32_t>(41, 3), 7);
  EXPECT_EQ(counts.draftTokens, counts.acceptedTokens);
  EXPECT_LE(counts.steps, 9);
}

// More tokens than the automaton has.
TEST_F(LookupTest, ForgetsTheBeginningOfALongText) {
  std::mt19937 random(7);
  for (const size_t size : {size_t{70000}, size_t{65500}}) {
    std::vector<int32_t> prompt(size), answer;
    for (int32_t &id : prompt)
      id = static_cast<int32_t>(random() % 37);
    for (int i = 0; i < 3; ++i)
      answer.insert(answer.end(), prompt.end() - 400, prompt.end() - 280);
    replay(prompt, answer, 7);
    EXPECT_GT(counts.acceptedTokens, 250) << size;
  }
}

// 200 requests, many behind the same prompts, with each kind of draft and 1 to
// 7 of them, where pages lack; and as many as save time.
TEST_F(DrafterTest, ManyAnswersAreTheSame) {
  manifest.programs[0].limits.rows = 40;
  BatcherOptions rules;
  const auto run = [&](Speculate speculate = Speculate::Off) {
    open({.sequences = 6, .kvPages = 9, .speculate = speculate}, rules);
    for (Request &request : manyRequests())
      add(std::move(request));
    finish();
    EXPECT_GT(batcher->counts().preemptions, 0);
    EXPECT_GT(batcher->counts().cachedTokens, 0);
    return answers;
  };
  const std::map<RequestId, Answer> known = run();
  const auto expectSame = [&](const std::string &what) {
    for (const auto &[id, answer] : known)
      ASSERT_TRUE(answers[id] == answer)
          << what << ": " << id << " " << answers[id].error;
  };
  // 0 to 3.
  auto noise = [random = 1U]() mutable {
    random = random * 69069 + 1;
    return static_cast<int32_t>(random >> 30);
  };
  for (const int kind : {0, 1, 2}) {
    draftFrom(known, false);
    script.draft = [&, noise,
                    right = script.draft](const Track &track, int64_t most,
                                          std::vector<int32_t> &next) mutable {
      right(track, most, next);
      const auto count = static_cast<size_t>(track.job().id() % 7 + 1);
      next.resize(std::min({next.size(), count}));
      for (int32_t &id : next)
        id = (id + (kind == 0 ? 0 : kind == 1 ? 1 : noise())) % 37;
    };
    run();
    expectSame("kind " + std::to_string(kind));
    if (kind == 1)
      EXPECT_EQ(script.accepted, 0);
    else
      EXPECT_GT(script.accepted, 0);
  }
  script = {};
  for (const int64_t drafts : {7, 2, 0}) {
    rules.drafts = drafts;
    run(Speculate::Lookup);
    expectSame("lookup, " + std::to_string(drafts) + " drafts");
    EXPECT_GT(batcher->counts().draftTokens, 0);
  }
}
