//===- DraftModelTest.cpp - Drafts of a smaller model ---------------------===//

#include "engine/drafters/DraftModel.h"
#include "DrafterTest.h"

#include <gtest/gtest.h>

#include <set>

using namespace qwen;
using namespace qwen::test;

/// Whether the draft behind a text is right, for a draft model that sometimes
/// is.
static bool isRightBehind(uint64_t hash) { return hash >> 40 & 1; }

/// Calls of the draft model, the greatest position in them, and their tokens.
static int64_t draftCalls, lastPosition, draftTokens;

/// What it has drawn from: 24 bits of the hash of a text each.
static std::vector<uint64_t> draftTexts;

namespace {
enum class Quality { Right, Wrong, Sometimes, Fails };
} // namespace

/// A model that drafts for a hash model: `forward` with other logits.
template <Quality kQuality, ForwardFn *forward>
static void draftForward(const Context *context, int32_t thread,
                         int32_t threads) {
  forward(context, thread, threads);
  if (thread != 0)
    return;
  ++draftCalls;
  const CountOfCall &wanted = context->counts[kWantedTokens];
  for (int64_t t = 0; t < context->tokens(); ++t) {
    ++draftTokens;
    lastPosition = std::max<int64_t>(lastPosition, context->positions[t]);
    if (kQuality == Quality::Fails && context->tokenIds[t] == 5)
      context->counts[kTokensOfCall].flags[t] = 1;
  }
  for (int64_t row = 0; row < wanted.number; ++row) {
    const std::span logits(context->result + row * 48, 37);
    // The logit of a token has 24 bits of the hash behind it.
    const auto bits = static_cast<uint64_t>(logits[0] * 0x1p22F);
    draftTexts.push_back(bits);
    if (kQuality == Quality::Wrong ||
        (kQuality == Quality::Sometimes && !isRightBehind(bits << 40)))
      std::ranges::rotate(logits, logits.begin() + 1);
  }
}

namespace {
class DraftModelTest : public DrafterTest {
protected:
  DraftModelTest() {
    manifest.programs[0].limits.rows = 40;
    draftManifest = manifest;
  }

  /// With lookup beside the model if `beside`.
  void openWith(ForwardFn *entry, const EngineOptions &options, int64_t drafts,
                int threads = 1, bool beside = false) {
    draftEntry = entry;
    draftCalls = lastPosition = draftTokens = 0;
    draftTexts.clear();
    EngineOptions all = options;
    all.speculate = entry ? Speculate::Auto : Speculate::Off;
    BatcherOptions rules = {.drafts = drafts};
    if (entry && !beside)
      rules.drafter = [](Engine &target) {
        return makeDraftModel(target, *target.draftEngine());
      };
    open(all, rules, threads);
  }

  /// The answers to `count` greedy requests.
  std::map<RequestId, Answer> greedy(ForwardFn *entry, int32_t count,
                                     int64_t drafts) {
    openWith(entry, {.sequences = count}, drafts);
    for (int32_t i = 0; i < count; ++i) {
      Request request = requestOf(9 + i, 60, i);
      request.sampling.temperature = 0;
      add(std::move(request));
    }
    finish();
    return answers;
  }

  /// The drafts that are right of an answer to squareTokens(9).
  static int64_t rightDrafts(const std::vector<int32_t> &ids, int64_t drafts) {
    std::vector<int32_t> text = squareTokens(9);
    text.insert(text.end(), ids.begin(), ids.end());
    std::vector<bool> isRight;
    uint64_t hash = 0;
    for (int32_t id : text) {
      hash = hashAfter(hash, id);
      isRight.push_back(isRightBehind(
          static_cast<uint64_t>(hashLogit(hash, 0) * 0x1p22F) << 40));
    }
    int64_t right = 0;
    // The first token comes with the prompt.
    for (int64_t last = 9; last + 1 < std::ssize(text); ++last) {
      const int64_t most = std::min(drafts, std::ssize(text) - last - 2);
      int64_t here = 0;
      while (here < most && isRight[static_cast<size_t>(last + here)])
        ++here;
      right += here;
      last += here;
    }
    return right;
  }
};
} // namespace

// 200 requests, sampled and greedy, where pages lack.
TEST_F(DraftModelTest, ManyAnswersAreTheSame) {
  const auto run = [&](ForwardFn *entry, int64_t drafts, int threads) {
    openWith(entry, {.sequences = 6, .kvPages = 9}, drafts, threads,
             /*beside=*/threads > 1);
    for (Request &request : manyRequests())
      add(std::move(request));
    finish();
    EXPECT_GT(batcher->counts().preemptions, 0);
    EXPECT_GT(batcher->counts().cachedTokens, 0);
    return answers;
  };
  const std::map<RequestId, Answer> known = run(nullptr, 0, 1);
  int64_t drafts = 0;
  for (ForwardFn *entry : {&draftForward<Quality::Right, hashForward>,
                           &draftForward<Quality::Wrong, hashForward>,
                           &draftForward<Quality::Sometimes, hashForward>,
                           &draftForward<Quality::Fails, hashForward>})
    for (int i = 0; i < 2; ++i) {
      // 0 is as many as save time.
      run(entry, drafts, i + 1);
      for (const auto &[id, answer] : known)
        ASSERT_TRUE(answers[id] == answer)
            << drafts << " drafts: " << id << " " << answers[id].error;
      if (drafts)
        EXPECT_GT(batcher->counts().draftTokens, 0);
      drafts = (drafts + 1) % 8;
    }
}

TEST_F(DraftModelTest, DraftsOfABatchTakeACallForEachPlace) {
  const std::map<RequestId, Answer> known = greedy(nullptr, 4, 0);
  EXPECT_TRUE(greedy(draftForward<Quality::Right, hashForward>, 4, 3) == known);
  const BatcherCounts counts = batcher->counts();
  EXPECT_EQ(counts.acceptedTokens, counts.draftTokens);
  // The first token of 60 comes with the prompt, then 14 steps give four each,
  // and the last three need two drafts.
  EXPECT_EQ(counts.steps, 16);
  EXPECT_EQ(draftCalls, 14 * 3 + 2);
  // Each token runs once but the last ones of an answer.
  EXPECT_EQ(draftTokens, 4 * (60 - 2) + 9 + 10 + 11 + 12);
}

// The state of a draft model is behind the right tokens after each rejection.
TEST_F(DraftModelTest, StepsBackToTheSettledTokens) {
  const std::map<RequestId, Answer> known = greedy(nullptr, 1, 0);
  for (const int64_t drafts : {1, 2, 3, 4, 7}) {
    draftManifest = hashManifest(400, 64);
    EXPECT_TRUE(greedy(draftForward<Quality::Sometimes, hashForward>, 1,
                       drafts) == known);
    const int64_t right = rightDrafts(known.at(1).ids, drafts);
    EXPECT_GT(right, 10);
    EXPECT_EQ(batcher->counts().acceptedTokens, right) << drafts;
    // Hybrids draft as far as they can step back.
    for (const bool isShort : {true, false}) {
      const int64_t stepBack = isShort ? 0 : kHashStepBack;
      draftManifest = hashManifest(400, 64, /*fixed=*/true, stepBack);
      EXPECT_TRUE(
          greedy(isShort
                     ? draftForward<Quality::Sometimes, fixedHashForward>
                     : draftForward<Quality::Sometimes, steppingHashForward>,
                 1, drafts) == known);
      EXPECT_EQ(batcher->counts().acceptedTokens,
                rightDrafts(known.at(1).ids, std::min(drafts, stepBack + 1)))
          << drafts << " " << stepBack;
    }
  }
}

// Constraints append tokens that no draft has been compared with.
TEST_F(DraftModelTest, DraftsFollowTheText) {
  openWith(draftForward<Quality::Sometimes, hashForward>, {.sequences = 6}, 3);
  std::map<RequestId, std::vector<int32_t>> texts;
  for (Request &request : waysToDraw()) {
    request.logprobs.reset();
    request.prompt.ids = squareTokens(9, static_cast<int32_t>(texts.size()));
    request.maxTokens = 80;
    std::vector<int32_t> prompt = request.prompt.ids;
    texts[add(std::move(request))] = std::move(prompt);
  }
  finish();
  std::set<uint64_t> known;
  for (auto &[id, text] : texts) {
    text.insert(text.end(), answers[id].ids.begin(), answers[id].ids.end());
    uint64_t hash = 0;
    for (int32_t token : text)
      known.insert(static_cast<uint64_t>(
          hashLogit(hash = hashAfter(hash, token), 0) * 0x1p22F));
  }
  const BatcherCounts counts = batcher->counts();
  EXPECT_GT(counts.drafts, 100);
  EXPECT_GE(
      std::ranges::count_if(
          draftTexts, [&](uint64_t text) { return known.contains(text); }),
      counts.drafts);
}

/// The next token depends on the last one.
static void chainForward(const Context *context, int32_t thread, int32_t) {
  const CountOfCall &wanted = context->counts[kWantedTokens];
  for (int64_t row = 0; thread == 0 && row < wanted.number; ++row) {
    std::ranges::fill(std::span(context->result + row * 48, 40), 0.0F);
    const int32_t last = context->tokenIds[wanted.tokens[row]];
    context->result[row * 48 + (last * 5 + 3) % 37] = 1;
  }
}

TEST_F(DraftModelTest, ReadsTheEndOfALongText) {
  manifest = draftManifest = hashManifest(6000, 64);
  manifest.programs[0].limits.rows = 40;
  entries = {chainForward};
  openWith(draftForward<Quality::Right, chainForward>, {.sequences = 1}, 7);
  Request request = requestOf(1000, 4000);
  request.sampling.temperature = 0;
  add(std::move(request));
  finish();
  EXPECT_EQ(answers[1].ids.size(), 4000U);
  EXPECT_EQ(batcher->counts().acceptedTokens, batcher->counts().draftTokens);
  EXPECT_EQ(batcher->counts().steps, 16 + 3999 / 8 + 1);
  EXPECT_LT(lastPosition, kDraftPositions);
  // The end of the prompt, and later the end of what there is.
  EXPECT_LT(draftTokens, 4000 + 4 * 64);
}

TEST_F(DraftModelTest, AnswersWithoutAPlaceHaveNoDrafts) {
  const std::map<RequestId, Answer> known = greedy(nullptr, 3, 0);
  const auto draftsWith = [&](int64_t pages) {
    draftPages = pages;
    EXPECT_TRUE(greedy(draftForward<Quality::Right, hashForward>, 3, 3) ==
                known);
    EXPECT_EQ(batcher->counts().acceptedTokens, batcher->counts().draftTokens);
    // Each text is read once.
    EXPECT_LT(draftTokens, 3 * (9 + 60) + 3);
    return batcher->counts().draftTokens;
  };
  // A place takes seven pages of 64 positions.
  EXPECT_EQ(draftPagesOf(draftManifest), 7);
  const int64_t ofAll = draftsWith(21), ofTwo = draftsWith(20),
                ofOne = draftsWith(7);
  EXPECT_LT(ofTwo, ofAll);
  EXPECT_LT(ofOne, ofTwo);
  EXPECT_GT(ofOne, 0);
  // With a page, a place has the end of the text only.
  const int64_t pages = std::exchange(draftPages, 1);
  EXPECT_EQ(pages, 7);
  EXPECT_TRUE(greedy(draftForward<Quality::Right, hashForward>, 3, 3) == known);
  EXPECT_LT(lastPosition, 64);
  EXPECT_GT(batcher->counts().acceptedTokens, 0);
}

TEST_F(DraftModelTest, GoesOnWithAnotherPrompt) {
  const auto texts = [&](ForwardFn *entry) {
    openWith(entry, {.sequences = 1}, 3);
    Request request = requestOf(20, 200);
    request.sampling.temperature = 0;
    request.isContinued = true;
    auto first = std::make_unique<Job>(std::move(request), 1, manifest.model);
    Job &job = *first;
    batcher->add(std::move(first));
    std::vector<std::vector<int32_t>> all;
    for (const int32_t last : {0, 7, 9}) {
      if (last) {
        // A part of what there is, and something else.
        std::vector<int32_t> prompt = all.back();
        prompt.resize(40);
        prompt.push_back(last);
        batcher->restart(job, {.prompt = prompt});
      }
      while (job.track().settledSize() < 90)
        batcher->step();
      const std::span<const int32_t> text = job.track().settled();
      all.emplace_back(text.begin(), text.begin() + 90);
    }
    return all;
  };
  const auto known = texts(nullptr);
  EXPECT_EQ(texts(draftForward<Quality::Right, hashForward>), known);
  EXPECT_GT(batcher->counts().draftTokens, 100);
  EXPECT_EQ(batcher->counts().acceptedTokens, batcher->counts().draftTokens);
}

// When a request or a batcher ends.
TEST_F(DraftModelTest, LeavesItsPages) {
  openWith(draftForward<Quality::Right, hashForward>, {.sequences = 2}, 2);
  const SequenceState &state = engine->draftEngine()->state();
  for (int i = 0; i < 3; ++i) {
    const RequestId id = add(requestOf(70, 90, i));
    for (int step = 0; step < 4; ++step)
      batcher->step();
    EXPECT_LT(state.freePages(), state.pages());
    if (i == 0)
      batcher->cancel(id);
    if (i == 1)
      batcher.emplace(*engine, BatcherOptions{.paced = false, .drafts = 2});
    if (i != 2)
      EXPECT_EQ(state.freePages(), state.pages());
  }
}
