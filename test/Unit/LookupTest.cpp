//===- LookupTest.cpp - Drafts from earlier places of a text --------------===//

#include "DrafterTest.h"
#include "engine/drafters/SuffixAutomaton.h"

#include <gtest/gtest.h>

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
