//===- BatcherTest.cpp - Steps, their order and pages ---------------------===//

#include "engine/Batcher.h"
#include "HashModel.h"
#include "TempDir.h"
#include "engine/Logprobs.h"
#include "engine/RootTable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>

using namespace qwen;
using namespace qwen::test;

namespace {
/// What the functions of a request have been told.
struct Told {
  std::vector<int32_t> drawn;
  std::vector<TokenLogprob> prompt;
  std::vector<int64_t> progress;
  /// Number of reports of progress before the first drawn token.
  size_t progressBefore = 0;
  std::optional<Ending> ending;
  int64_t firstStep = -1;
};

class BatcherTest : public testing::Test {
protected:
  void open(const EngineOptions &options, const BatcherOptions &rules = {},
            int64_t context = 400, int64_t tokens = 8, bool fixed = false) {
    batcher.reset();
    manifest = hashManifest(context, tokens, fixed);
    engine.emplace(manifest, nullptr,
                   std::vector{fixed ? fixedHashForward : hashForward}, pool,
                   options);
    batcher.emplace(*engine, rules);
  }

  RequestId add(Request request) {
    const RequestId id = ++last;
    Told &entry = told[id];
    request.onToken = [&entry, this](const TokenEvent &event) {
      EXPECT_FALSE(entry.ending);
      if (event.isPrompt) {
        entry.prompt.push_back({event.id, event.logprob});
        return true;
      }
      if (entry.drawn.empty()) {
        entry.firstStep = batcher->counts().steps + 1;
        entry.progressBefore = entry.progress.size();
      }
      entry.drawn.push_back(event.id);
      return true;
    };
    request.onProgress = [&](const Progress &progress) {
      entry.progress.push_back(progress.done);
    };
    request.onEnd = [&](const Ending &ending) {
      EXPECT_FALSE(entry.ending);
      entry.ending = ending;
    };
    requests[id] = request;
    batcher->add(std::make_unique<Job>(std::move(request), id, manifest.model));
    return id;
  }

  RequestId add(std::vector<int32_t> prompt, int64_t maxTokens,
                int32_t priority = 0) {
    Request request;
    request.prompt.ids = std::move(prompt);
    request.sampling.seed = last;
    // The state of these survives preemption.
    request.sampling.mirostat = static_cast<int64_t>(last % 3);
    request.sampling.mirostatTau = 2;
    request.sampling.dryMultiplier = 0.5;
    request.sampling.dryAllowedLength = 1;
    request.sampling.badWords = {{3, 4}, {5}};
    request.maxTokens = maxTokens;
    request.priority = priority;
    return add(std::move(request));
  }

  void finish() {
    while (!batcher->isIdle())
      batcher->step();
    EXPECT_EQ(engine->state().freePages(), engine->state().pages());
  }

  /// Whether a request drew the tokens that it must.
  void expectAnswer(RequestId id) {
    EXPECT_EQ(told[id].drawn, hashAnswer(requests[id])) << "request " << id;
  }

  Manifest manifest;
  ThreadPool pool{1};
  RootTable roots;
  std::optional<Engine> engine;
  std::optional<Batcher> batcher;
  std::map<RequestId, Told> told;
  std::map<RequestId, Request> requests;
  RequestId last = 0;
};
} // namespace

TEST_F(BatcherTest, EndsEachRequestOnceAndForItsReason) {
  open({.sequences = 3});
  const RequestId length = add(squareTokens(70), 20);
  Request request;
  request.prompt.ids = squareTokens(3);
  request.maxTokens = 200;
  request.stopTokens = {7, 8, 9};
  const RequestId stopped = add(request);
  const RequestId nothing = add(squareTokens(5), 0);
  request.prompt.ids = {1, 2, kNotFiniteId, 3};
  const RequestId failed = add(request);
  const RequestId cancelled = add(squareTokens(9), 1000);
  const RequestId full = add(squareTokens(390), 1000);
  for (int i = 0; i < 60; ++i)
    batcher->step();
  batcher->cancel(cancelled);
  batcher->cancel(99);
  finish();
  for (RequestId id : {length, stopped, nothing})
    expectAnswer(id);
  EXPECT_EQ(told[length].ending->reason, EndReason::Length);
  EXPECT_EQ(told[length].ending->promptTokens, 70);
  EXPECT_EQ(told[length].ending->drawnTokens, 20);
  EXPECT_EQ(told[stopped].ending->reason, EndReason::Stop);
  EXPECT_EQ(told[nothing].ending->reason, EndReason::Length);
  EXPECT_EQ(told[cancelled].ending->reason, EndReason::Cancelled);
  EXPECT_EQ(told[failed].ending->reason, EndReason::Failed);
  EXPECT_EQ(told[failed].ending->kind, ErrorKind::NotFinite);
  EXPECT_NE(told[failed].ending->error.find("position 2, in second"),
            std::string::npos);
  // The last token of a full context is drawn but never runs.
  EXPECT_EQ(told[full].drawn.size(), 11u);
  EXPECT_EQ(told[full].ending->reason, EndReason::Length);
  EXPECT_EQ(told[length].progress.back(), 70);
  EXPECT_TRUE(std::ranges::is_sorted(told[length].progress, std::less_equal()));
  EXPECT_EQ(told[length].progressBefore, told[length].progress.size());
  EXPECT_EQ(told[nothing].progress.back(), 5);
}

TEST_F(BatcherTest, RefusesWhatCannotRun) {
  open({});
  EXPECT_EQ(messageOf([&] { add({}, 1); }),
            "the prompt is empty: at least one token is needed");
  EXPECT_NE(messageOf([&] { add(squareTokens(401), 1); }), "");
  EXPECT_NE(messageOf([&] { add({40}, 1); }), "");
  EXPECT_NE(messageOf([&] { add({1}, -1); }), "");
  EXPECT_TRUE(batcher->isIdle());
  open({.kvPages = 2});
  const RequestId id = add(squareTokens(200), 1);
  finish();
  EXPECT_EQ(told[id].ending->kind, ErrorKind::NoPage);
  EXPECT_EQ(told[id].ending->error,
            "the request has 200 tokens when all 2 pages of the KV cache have "
            "room for 128");
  // An answer may grow until it has all pages.
  const RequestId grown = add(squareTokens(100), 100);
  finish();
  EXPECT_EQ(told[grown].drawn.size(), 29u);
  EXPECT_EQ(told[grown].ending->kind, ErrorKind::NoPage);
}

TEST_F(BatcherTest, EqualPromptsShareThePagesThatRan) {
  open({.sequences = 4}, {.promptTokens = 64}, 400, 64);
  for (int i = 0; i < 4; ++i)
    add(squareTokens(300), 10);
  finish();
  for (const auto &[id, entry] : told)
    expectAnswer(id);
  EXPECT_EQ(engine->state().keptPages(), 4);
  // The first runs all of it, the others little more than the last page.
  EXPECT_LT(batcher->counts().promptTokens, 700);
  const int64_t before = batcher->counts().promptTokens;
  const RequestId again = add(squareTokens(300), 10);
  finish();
  expectAnswer(again);
  EXPECT_EQ(told[again].ending->cachedTokens, 256);
  EXPECT_EQ(batcher->counts().promptTokens, before + 44);
  // Answers are kept too, but not for other salts.
  std::vector<int32_t> turn = squareTokens(300);
  turn.insert(turn.end(), told[1].drawn.begin(), told[1].drawn.end());
  turn.insert(turn.end(), 60, 5);
  const RequestId other = add(turn, 3);
  finish();
  expectAnswer(other);
  EXPECT_EQ(told[other].ending->cachedTokens, 256);
  Request request;
  request.prompt.ids = squareTokens(300);
  request.maxTokens = 2;
  request.prompt.root = roots.intern({.salt = "1"});
  const RequestId salted = add(request);
  finish();
  EXPECT_EQ(told[salted].ending->cachedTokens, 0);
  expectAnswer(salted);
}

// As turns of a chat: a template writes an answer without its thoughts.
TEST_F(BatcherTest, ASnapshotServesTheTokensUpToIt) {
  open({.sequences = 2, .snapshotBytes = 4 * 128}, {.snapshotEvery = 128}, 400,
       64, /*fixed=*/true);
  const auto cached = [&](Request request) {
    const RequestId id = add(std::move(request));
    finish();
    expectAnswer(id);
    return told[id].ending->cachedTokens;
  };
  Request request;
  request.prompt.ids = squareTokens(90);
  request.snapshotAt = 85;
  request.maxTokens = 30;
  EXPECT_EQ(cached(request), 0);
  std::vector<int32_t> all = request.prompt.ids;
  all.insert(all.end(), told[last].drawn.begin(), told[last].drawn.end());
  // At the end of the answer, whose last token has not run.
  request.prompt.ids = all;
  request.prompt.ids.push_back(4);
  request.maxTokens = 0;
  EXPECT_EQ(cached(request), 119);
  // Without the answer.
  request.prompt.ids.assign(all.begin(), all.begin() + 85);
  request.prompt.ids.insert(request.prompt.ids.end(), 70, 3);
  EXPECT_EQ(cached(request), 85);
  // Every 128 positions.
  request.prompt.ids.resize(130);
  EXPECT_EQ(cached(request), 128);
  // That has made two snapshots, but the one that was of use is still there.
  request.prompt.ids = all;
  EXPECT_EQ(cached(request), 85);
  // The last token has to run.
  request.prompt.ids.resize(85);
  EXPECT_EQ(cached(request), 0);
  request.prompt.ids.push_back(7);
  EXPECT_EQ(cached(request), 85);
  request.prompt.root = roots.intern({.salt = "1"});
  EXPECT_EQ(cached(request), 0);
  EXPECT_EQ(engine->state().freeSnapshots(), 0);
}

// A snapshot is of use as long as its pages are kept.
TEST_F(BatcherTest, ASnapshotNeedsItsPages) {
  for (auto [size, others, cached] :
       {std::array<int64_t, 3>{64, 310, 64}, {64, 380, 0}, {90, 310, 0}}) {
    open({.kvPages = 6, .snapshotBytes = 1024}, {}, 400, 64,
         /*fixed=*/true);
    Request request;
    request.prompt.ids = squareTokens(size);
    request.maxTokens = 0;
    add(request);
    finish();
    request.prompt.ids.push_back(2);
    const RequestId again = add(request);
    finish();
    EXPECT_EQ(told[again].ending->cachedTokens, size);
    add(squareTokens(others, 1), 0);
    finish();
    const RequestId late = add(request);
    finish();
    EXPECT_EQ(told[late].ending->cachedTokens, cached);
  }
}

// The first of the rows must be computed, the positions before it need not.
TEST_F(BatcherTest, EarlyRowsShareThePagesBeforeThem) {
  for (auto [count, cached] : {std::array<int64_t, 2>{20, 128}, {30, 64}}) {
    open({});
    std::vector<std::vector<float>> rows;
    Request request;
    request.prompt.ids = squareTokens(150);
    request.rows = {RowKind::Logits,
                    [&](std::span<const float> row) {
                      rows.emplace_back(row.begin(), row.end());
                    },
                    static_cast<size_t>(count)};
    add(request);
    finish();
    const RequestId again = add(request);
    finish();
    EXPECT_EQ(told[again].ending->cachedTokens, cached);
    ASSERT_EQ(std::ssize(rows), 2 * count);
    EXPECT_TRUE(
        std::equal(rows.begin(), rows.begin() + count, rows.begin() + count));
  }
}

TEST_F(BatcherTest, OnlyAnswersAreContinued) {
  open({.sequences = 3, .snapshotBytes = 1024}, {}, 400, 64,
       /*fixed=*/true);
  Request request;
  request.prompt.ids = squareTokens(20);
  for (RowKind kind : {RowKind::Hidden, RowKind::Logits}) {
    request.rows = {kind, [](std::span<const float>) {}};
    add(request);
  }
  finish();
  EXPECT_EQ(engine->state().freeSnapshots(), 8);
}

// It has gone back to a position where a snapshot is due, and lost pages.
TEST_F(BatcherTest, AFailedRequestTakesNoSnapshot) {
  open({.snapshotBytes = 1024}, {}, 400, 64, /*fixed=*/true);
  Request request;
  request.prompt.ids = squareTokens(100);
  request.prompt.ids.push_back(kNotFiniteId);
  request.snapshotAt = 20;
  const RequestId failed = add(request);
  finish();
  EXPECT_EQ(told[failed].ending->kind, ErrorKind::NotFinite);
  EXPECT_EQ(engine->state().freeSnapshots(), 7);
  const RequestId again = add(squareTokens(30), 2);
  finish();
  expectAnswer(again);
}

TEST_F(BatcherTest, APreemptedRequestGoesOnAtItsState) {
  open({.sequences = 1, .snapshotBytes = 1024}, {}, 400, 8,
       /*fixed=*/true);
  const RequestId low = add(squareTokens(100), 30);
  for (int i = 0; i < 20; ++i)
    batcher->step();
  const RequestId high = add(squareTokens(100, 1), 20, 1);
  finish();
  expectAnswer(low);
  expectAnswer(high);
  EXPECT_EQ(batcher->counts().preemptions, 1);
  EXPECT_EQ(batcher->counts().promptTokens, 200);
}

TEST_F(BatcherTest, AShortPromptPassesALongOne) {
  for (bool decoding : {false, true}) {
    open({.sequences = 3}, {.promptTokens = decoding ? 4 : 64}, 20000, 64);
    if (decoding)
      add(squareTokens(2), 10000);
    for (int i = 0; i < 3; ++i)
      batcher->step();
    const RequestId longer = add(squareTokens(16000), 1);
    for (int i = 0; i < 40; ++i)
      batcher->step();
    const int64_t before = batcher->counts().steps;
    const RequestId quick = add(squareTokens(16, 5), 4);
    for (int i = 0; i < 8; ++i)
      batcher->step();
    EXPECT_GT(told[quick].firstStep, before);
    // One more step is the one in which it may have come.
    EXPECT_LE(told[quick].firstStep - before, decoding ? 16 / 4 + 1 : 2);
    EXPECT_EQ(told[longer].firstStep, -1);
    batcher->cancelAll();
    EXPECT_EQ(engine->state().freePages(), engine->state().pages());
  }
}

// Short prompts come all the time, and would take all tokens.
TEST_F(BatcherTest, LongPromptsDoNotStarve) {
  open({.sequences = 4}, {.promptTokens = 16}, 2000, 64);
  const RequestId longer[] = {add(squareTokens(1000), 1),
                              add(squareTokens(1000, 1), 1)};
  for (int i = 0; i < 700 && told[longer[1]].drawn.empty(); ++i) {
    add(squareTokens(16, i), 1);
    batcher->step();
  }
  // Others pass a prompt with as many tokens as it has; then it gets a quarter.
  EXPECT_LE(told[longer[0]].firstStep, 1000 / 16 + 1000 / 4 + 3);
  EXPECT_LE(told[longer[1]].firstStep, 1000 / 16 + 2 * 1000 / 4 + 3);
  EXPECT_GE(told[longer[0]].firstStep, 1000 / 16);
  finish();
}

// Also when others have passed the long ones, so that these come first.
TEST_F(BatcherTest, ShortPromptsNeverWaitForLongOnes) {
  open({.sequences = 5}, {.promptTokens = 16}, 2000, 64);
  const RequestId longer[] = {add(squareTokens(1000), 1),
                              add(squareTokens(1000, 1), 1)};
  int64_t longest = 0;
  while (told[longer[0]].drawn.empty() || told[longer[1]].drawn.empty()) {
    const int64_t before = batcher->counts().steps;
    const RequestId quick =
        add(squareTokens(16, static_cast<int32_t>(before) % 37), 1);
    batcher->step();
    batcher->step();
    batcher->step();
    ASSERT_GT(told[quick].firstStep, 0) << before;
    longest = std::max(longest, told[quick].firstStep - before);
  }
  EXPECT_LE(longest, 2);
  // They have all that short prompts leave: 2 of 3 steps.
  EXPECT_LE(told[longer[1]].firstStep, 2000 * 3 / (2 * 16) + 3);
  finish();
}

// A series has one request that waits; what comes later is not behind all.
TEST_F(BatcherTest, ASeriesLetsOthersPass) {
  open({.sequences = 2}, {}, 400, 16);
  int made = 0, total = 100, ended = 0, failed = 0, done = 0;
  const auto next = [&]() -> std::optional<Request> {
    if (made == total)
      return std::nullopt;
    Request request;
    ++made;
    // Every tenth cannot run.
    request.prompt.ids = squareTokens(made % 10 ? 8 : 500, made);
    request.maxTokens = 1;
    request.onEnd = [&](const Ending &ending) {
      ++ended;
      failed += ending.reason == EndReason::Failed;
      EXPECT_EQ(done, ended == total);
    };
    return request;
  };
  const auto addSeries = [&] {
    made = ended = failed = done = 0;
    auto series = std::make_shared<Series>();
    series->next = next;
    series->onDone = [&] { ++done; };
    batcher->add(std::make_unique<Job>(*next(), 1000, manifest.model,
                                       std::move(series)));
  };
  addSeries();
  for (int i = 0; i < 5; ++i)
    batcher->step();
  EXPECT_EQ(batcher->waitingCount(), 1U);
  const int before = ended;
  const RequestId small = add(squareTokens(8, 30), 1);
  while (!told[small].ending)
    batcher->step();
  EXPECT_LE(ended - before, 5);
  finish();
  EXPECT_EQ(ended, 100);
  EXPECT_EQ(failed, 10);

  addSeries();
  batcher->step();
  total = made;
  batcher->cancel(1000);
  EXPECT_TRUE(batcher->isIdle());
  EXPECT_EQ(ended, total);
  EXPECT_LE(total, 6);
  EXPECT_EQ(done, 1);
}

TEST_F(BatcherTest, PrioritiesComeFirst) {
  open({.sequences = 1}, {}, 400, 8);
  const RequestId low = add(squareTokens(50), 30);
  batcher->step();
  const RequestId high = add(squareTokens(100), 20, 1);
  const RequestId same = add(squareTokens(1), 1);
  finish();
  for (RequestId id : {low, high, same})
    expectAnswer(id);
  EXPECT_LT(told[high].firstStep, told[low].firstStep);
  EXPECT_EQ(batcher->counts().preemptions, 1);
}

TEST_F(BatcherTest, PrioritiesAreReadFirst) {
  open({.sequences = 2}, {}, 400, 8);
  const RequestId low = add(squareTokens(10), 1);
  const RequestId high = add(squareTokens(100), 1, 1);
  finish();
  EXPECT_LT(told[high].firstStep, told[low].firstStep);
}

TEST_F(BatcherTest, ScarcePagesPreemptTheLast) {
  for (int way = 0; way < 4; ++way) {
    const bool prefixCache = way % 2, fixed = way / 2;
    open({.sequences = 6, .kvPages = 7, .snapshotBytes = 32 * 128},
         {.prefixCache = prefixCache, .snapshotEvery = 32}, 400, 8, fixed);
    std::vector<RequestId> ids;
    for (int i = 0; i < 6; ++i)
      ids.push_back(add(squareTokens(30 + 10 * i, i), 100));
    finish();
    for (RequestId id : ids)
      expectAnswer(id);
    EXPECT_GT(batcher->counts().preemptions, 0);
    // Some pages are still there when their request runs again, and snapshots.
    EXPECT_EQ(batcher->counts().cachedTokens > 0, prefixCache);
  }
}

TEST_F(BatcherTest, RequestsStartWhenTheirPromptsFit) {
  open({.sequences = 3, .kvPages = 9}, {.promptTokens = 256}, 400, 256);
  const RequestId first = add(squareTokens(250), 20);
  const RequestId second = add(squareTokens(260, 1), 20);
  finish();
  expectAnswer(first);
  expectAnswer(second);
  EXPECT_EQ(batcher->counts().preemptions, 0);
  EXPECT_GE(told[second].firstStep, told[first].firstStep + 20);
}

// Three answers take a page each that was free when the last two prompts
// started. These wait for a prompt of a higher priority, and then run in one
// step. On a busy machine a step may have no room for both, so there are
// several attempts.
TEST_F(BatcherTest, PromptsOfAStepShareTheFreePages) {
  bool together = false;
  for (int attempt = 0; attempt < 10 && !together; ++attempt) {
    open({.sequences = 6, .kvPages = 293}, {.promptTokens = 256}, 20000, 256);
    std::vector<RequestId> ids;
    for (int i = 0; i < 3; ++i) {
      Request request;
      request.prompt.ids = squareTokens(60, i);
      request.maxTokens = 200;
      // Beside such long draws, a step may have as many prompt tokens as a
      // call.
      request.onDraw = [this, id = last + 1](auto...) {
        if (!told[id].drawn.empty())
          std::this_thread::sleep_for(std::chrono::microseconds(150));
        return std::nullopt;
      };
      ids.push_back(add(std::move(request)));
    }
    while (told[ids[2]].drawn.size() < 3)
      batcher->step();
    ids.push_back(add(squareTokens(int64_t{256} * 70, 3), 100, /*priority=*/1));
    ids.push_back(add(squareTokens(120, 4), 1));
    ids.push_back(add(squareTokens(120, 5), 1));
    for (int i = 0; i < 3 && batcher->runningCount() < 6; ++i)
      batcher->step();
    together = batcher->runningCount() == 6;
    finish();
    for (RequestId id : ids)
      expectAnswer(id);
  }
  EXPECT_TRUE(together);
}

TEST_F(BatcherTest, ScoresPromptsOnce) {
  open({.sequences = 4, .kvPages = 6});
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) {
    Request request;
    request.prompt.ids = squareTokens(60 + i);
    request.maxTokens = 70;
    request.logprobs = 2;
    request.scorePrompt = true;
    ids.push_back(add(std::move(request)));
  }
  finish();
  EXPECT_GT(batcher->counts().preemptions, 0);
  for (RequestId id : ids) {
    expectAnswer(id);
    const std::vector<int32_t> &prompt = requests[id].prompt.ids;
    ASSERT_EQ(told[id].prompt.size(), prompt.size() - 1);
    uint64_t hash = 0;
    for (size_t i = 0; i + 1 < prompt.size(); ++i) {
      hash = hashAfter(hash, prompt[i]);
      std::vector<float> logits;
      for (int32_t token = 0; token < 40; ++token)
        logits.push_back(hashLogit(hash, token));
      EXPECT_EQ(told[id].prompt[i].id, prompt[i + 1]);
      EXPECT_EQ(told[id].prompt[i].logprob,
                static_cast<float>(logits[static_cast<size_t>(prompt[i + 1])] -
                                   logSumExp(logits)));
    }
  }
}
