//===- SessionTest.cpp - One sequence, and memory of the token loop -------===//

#include "engine/Session.h"
#include "HandmadeArtifact.h"
#include "TempDir.h"
#include "engine/Batcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

using namespace qwen;
using namespace qwen::test;

/// Allocations of this program so far; -1 under sanitizers, which have their
/// own operator new.
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
static constexpr int64_t allocations = -1;
#else
static std::atomic<int64_t> allocations;

void *operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void *memory = malloc(size))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { free(memory); }
void operator delete(void *memory, size_t) noexcept { free(memory); }
#endif

static std::vector<int32_t> ran;

/// Its logits prefer the token after the last one.
static void countingForward(const Context *context, int32_t thread, int32_t) {
  if (thread != 0)
    return;
  for (int64_t t = 0; t < context->tokens(); ++t)
    if (ran.size() < ran.capacity())
      ran.push_back(context->tokenIds[t]);
  const CountOfCall &wanted = context->counts[kWantedTokens];
  for (int64_t row = 0; row < wanted.number; ++row)
    for (int32_t id = 0; id < 40; ++id)
      context->result[row * 48 + id] =
          id == context->tokenIds[wanted.tokens[row]] + 1 ? 1.f : 0.f;
}

namespace {
class SessionTest : public testing::Test {
protected:
  void SetUp() override {
    ran.clear();
    ran.reserve(4096);
  }

  Manifest manifest = parseManifest(handmadeManifest(), "f", 64);
  ThreadPool pool{2};
  Engine engine{manifest, nullptr, {countingForward}, pool};
};
} // namespace

TEST_F(SessionTest, TakesOtherOptions) {
  Session session(engine, {});
  session.setTokens(std::array{3, 4});
  EXPECT_EQ(session.next(), 5);
  session.setSampling({.logitBias = {{9, 10}}});
  session.setTokens(std::array{3, 4});
  EXPECT_EQ(session.next(), 9);
  session.setSampling({});
  session.setTokens(std::array{3, 4});
  EXPECT_EQ(session.next(), 5);
}

TEST_F(SessionTest, RunsEachTokenOnce) {
  Session session(engine, {.temperature = 0});
  session.setTokens(std::vector<int32_t>{5, 9, 3});
  EXPECT_EQ(session.next(), 4);
  EXPECT_EQ(session.next(), 5);
  EXPECT_EQ(ran, (std::vector<int32_t>{5, 9, 3, 4}));
  EXPECT_EQ(
      std::vector<int32_t>(session.tokens().begin(), session.tokens().end()),
      (std::vector<int32_t>{5, 9, 3, 4, 5}));
}

TEST_F(SessionTest, KeepsWhatThePromptHasInCommon) {
  Session session(engine, {.temperature = 0});
  session.setTokens(std::vector<int32_t>{5, 9, 3});
  session.next();
  session.next();
  // 5 9 3 4 have run.
  ran.clear();
  session.setTokens(std::vector<int32_t>{5, 9, 3, 7, 8});
  EXPECT_EQ(session.next(), 9);
  EXPECT_EQ(ran, (std::vector<int32_t>{7, 8}));
  ran.clear();
  session.setTokens(std::vector<int32_t>{5, 9});
  EXPECT_EQ(session.next(), 10);
  EXPECT_EQ(ran, (std::vector<int32_t>{9}));
}

TEST_F(SessionTest, TakesOtherTokensBeforeTheFirstRun) {
  Session session(engine, {.temperature = 0});
  session.setTokens(std::array{3, 4});
  session.setTokens(std::array{5, 9, 3});
  EXPECT_EQ(messageOf([&] { session.setTokens({}); }),
            "the prompt is empty: at least one token is needed");
  EXPECT_EQ(session.next(), 4);
  EXPECT_EQ(ran, (std::vector<int32_t>{5, 9, 3}));
  session.setTokens(std::array{5, 9});
  EXPECT_EQ(session.next(), 10);
}

TEST_F(SessionTest, EndsAtTheContext) {
  Session session(engine, {.temperature = 0});
  session.setTokens(std::vector<int32_t>(100, 3));
  EXPECT_EQ(session.next(), 4);
  EXPECT_EQ(session.next(), std::nullopt);
  EXPECT_EQ(messageOf([&] { session.setTokens(std::vector<int32_t>(101, 3)); }),
            "the prompt has 101 tokens when the model was compiled for a "
            "context of 100");
  // The checkpoint supports a longer context, so the error says how to get it.
  manifest.model.maxContext = 200;
  EXPECT_EQ(messageOf([&] { session.setTokens(std::vector<int32_t>(101, 3)); }),
            "the prompt has 101 tokens when the model was compiled for a "
            "context of 100; recompile it with qwen-opt --context for up to "
            "200");
  EXPECT_EQ(messageOf([&] { session.setTokens({}); }),
            "the prompt is empty: at least one token is needed");
  EXPECT_EQ(messageOf([&] { session.setTokens(std::vector<int32_t>{40}); }),
            "token id 40 is not in the model's vocabulary of 40");
}

TEST_F(SessionTest, StopsBetweenCalls) {
  Session session(engine, {.temperature = 0});
  session.setTokens(std::vector<int32_t>(20, 3));
  int asked = 0;
  // Calls have 8 tokens; the third call does not happen.
  EXPECT_EQ(session.next([&] { return ++asked == 3; }), std::nullopt);
  EXPECT_EQ(ran.size(), 16u);
  EXPECT_EQ(session.next(), 4);
  EXPECT_EQ(ran.size(), 20u);
}

/// Runs steps of a steady set of `running` requests, which must allocate
/// nothing. Ends the test.
static void expectNoAllocations(Batcher &batcher, size_t running) {
  const int64_t before = allocations;
  if (before < 0)
    GTEST_SKIP() << "a sanitizer has the allocator";
  for (int i = 0; i < 200; ++i)
    batcher.step();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(batcher.runningCount(), running);
  batcher.cancelAll();
}

// With a steady set of requests, also while they fill and keep pages.
TEST_F(SessionTest, StepsAllocateNothing) {
  manifest.model.context = 1000;
  Engine wide(manifest, nullptr, {countingForward}, pool, {.sequences = 4});
  Batcher batcher(wide);
  for (RequestId id = 1; id <= 4; ++id) {
    Request request;
    request.prompt.ids = {1, 2, static_cast<int32_t>(id)};
    request.sampling = {.topK = 5, .seed = id};
    request.logprobs = 3;
    request.onToken = [](const TokenEvent &) { return true; };
    batcher.add(std::make_unique<Job>(std::move(request), id, manifest.model));
  }
  for (int i = 0; i < 10; ++i)
    batcher.step();
  expectNoAllocations(batcher, 4);
}

namespace {
/// Counts on from the last token.
class CountingDrafter final : public Drafter {
public:
  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    for (int64_t i = 1; i <= std::min<int64_t>(most, 5); ++i)
      tokens.push_back(static_cast<int32_t>((track.settled().back() + i) % 37));
  }
  void accept(const Track &, int64_t, int64_t accepted) override {
    wasRight |= accepted > 0;
  }

  static bool wasRight;
};
bool CountingDrafter::wasRight = false;
} // namespace

// Samplers of all threads see drafts, too.
TEST_F(SessionTest, StepsWithDraftsAllocateNothing) {
  manifest.model.context = 4000;
  manifest.programs[0].limits.rows = 8;
  ThreadPool three{3};
  Engine wide(manifest, nullptr, {countingForward}, three, {.sequences = 2});
  BatcherOptions rules;
  rules.drafter = [](Engine &) { return std::make_unique<CountingDrafter>(); };
  rules.drafts = 5;
  Batcher batcher(wide, rules);
  for (RequestId id = 1; id <= 2; ++id) {
    Request request;
    request.prompt.ids = {1, 2, static_cast<int32_t>(id)};
    request.sampling = {.temperature = 0.4F, .topK = 3, .seed = id};
    if (id == 1)
      request.sampling.frequencyPenalty = 0.01F;
    else
      request.sampling.dryMultiplier = 0.01F;
    batcher.add(std::make_unique<Job>(std::move(request), id, manifest.model));
  }
  for (int i = 0; i < 30; ++i)
    batcher.step();
  EXPECT_TRUE(CountingDrafter::wasRight);
  expectNoAllocations(batcher, 2);
}

// A smaller model that is wrong at times.
TEST_F(SessionTest, StepsWithADraftModelAllocateNothing) {
  manifest.model.context = 4000;
  manifest.programs[0].limits.rows = 8;
  ThreadPool two{2};
  Engine wide(manifest, nullptr, {countingForward}, two,
              {.sequences = 2, .speculate = Speculate::Auto});
  wide.setDraftEngine(std::make_shared<Engine>(
      manifest, nullptr, std::vector<ForwardFn *>{countingForward}, two,
      EngineOptions{.sequences = 2}));
  Batcher batcher(wide, {.drafts = 3});
  for (RequestId id = 1; id <= 2; ++id) {
    Request request;
    request.prompt.ids.assign(300, static_cast<int32_t>(id));
    request.sampling = {.temperature = 0.4F, .topK = 3, .seed = id};
    batcher.add(std::make_unique<Job>(std::move(request), id, manifest.model));
  }
  for (int i = 0; i < 100; ++i)
    batcher.step();
  EXPECT_GT(batcher.counts().acceptedTokens, 0);
  EXPECT_LT(batcher.counts().acceptedTokens, batcher.counts().draftTokens);
  expectNoAllocations(batcher, 2);
}

// Lookup, and as many drafts as save time.
TEST_F(SessionTest, StepsWithLookupAllocateNothing) {
  manifest.model.context = 4000;
  manifest.programs[0].limits.rows = 8;
  Engine wide(manifest, nullptr, {countingForward}, pool,
              {.sequences = 2, .speculate = Speculate::Lookup});
  for (const int64_t drafts : {5, 0}) {
    Batcher batcher(wide, {.drafts = drafts});
    for (RequestId id = 1; id <= 2; ++id) {
      Request request;
      request.prompt.ids = {1, 2, static_cast<int32_t>(id), 1, 2};
      request.sampling.temperature = 0;
      // Texts that come again.
      request.onDraw = [id](std::span<const float>, int64_t position) {
        return static_cast<int32_t>(position % (13 + static_cast<int64_t>(id)));
      };
      batcher.add(
          std::make_unique<Job>(std::move(request), id, manifest.model));
    }
    for (int i = 0; i < 60; ++i)
      batcher.step();
    EXPECT_GT(batcher.counts().acceptedTokens, 0);
    expectNoAllocations(batcher, 2);
  }
}

// A session gives the tokens of a step one by one.
TEST_F(SessionTest, TokensOfDraftsComeOneByOne) {
  manifest.model.context = 300;
  manifest.programs[0].limits.rows = 8;
  const auto answerOf = [&](Speculate speculate) {
    Engine drafting(manifest, nullptr, {countingForward}, pool,
                    {.speculate = speculate});
    Session session(drafting, {.temperature = 0, .topK = 0}, {6});
    std::vector<int32_t> answer, prompt = {3, 4, 5, 6, 7, 3, 4};
    session.setTokens(prompt);
    for (int i = 0; i < 120; ++i) {
      answer.push_back(session.next().value());
      EXPECT_EQ(session.tokens().size(), prompt.size() + answer.size());
      EXPECT_EQ(session.tokens().back(), answer.back());
    }
    if (speculate == Speculate::Off)
      EXPECT_EQ(session.counts().draftTokens, 0);
    else
      EXPECT_GT(session.counts().acceptedTokens, 0);
    // Tokens that have not been given are forgotten.
    EXPECT_EQ(session.next([] { return true; }), std::nullopt);
    prompt.push_back(9);
    session.setTokens(prompt);
    EXPECT_EQ(session.tokens().size(), prompt.size());
    while (const std::optional<int32_t> id = session.next())
      answer.push_back(*id);
    return answer;
  };
  EXPECT_EQ(answerOf(Speculate::Auto), answerOf(Speculate::Off));
}

TEST_F(SessionTest, TheTokenLoopAllocatesNothing) {
  for (const SamplerOptions &options :
       {SamplerOptions{.temperature = 0},
        SamplerOptions{.topK = 5, .topP = 0.9, .minP = 0.1, .seed = 3}}) {
    Session session(engine, options);
    session.setTokens(std::vector<int32_t>{1, 2});
    session.next();
    const int64_t before = allocations;
    if (before < 0)
      GTEST_SKIP() << "a sanitizer has the allocator";
    for (int i = 0; i < 90; ++i)
      session.next();
    EXPECT_EQ(allocations, before);
  }
}
