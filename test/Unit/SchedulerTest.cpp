//===- SchedulerTest.cpp - Requests of several threads --------------------===//

#include "engine/Scheduler.h"
#include "HashModel.h"
#include "TempDir.h"
#include "engine/RootTable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <random>

using namespace qwen;
using namespace qwen::test;

namespace {
/// A random request and what its functions have been told.
struct Sample {
  Request request;
  /// Tokens after which onToken returns false.
  size_t patience = 1000;
  bool isInvalid = false;

  std::vector<int32_t> drawn;
  int endings = 0;
  EndReason reason = EndReason::Failed;
  ErrorKind kind = ErrorKind::General;

  explicit Sample(uint64_t seed);
  void check() const;
};
} // namespace

Sample::Sample(uint64_t seed) {
  static RootTable roots;
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) {
    return static_cast<int32_t>(random() % n);
  };
  // Requests have one of three prefixes in common.
  const int32_t prefix = below(3);
  const int32_t common = below(160);
  for (int32_t i = 0; i < common; ++i)
    request.prompt.ids.push_back((i * i + prefix) % 37);
  for (int32_t i = below(20); i >= 0; --i)
    request.prompt.ids.push_back(below(37));
  isInvalid = below(20) == 0;
  if (isInvalid)
    request.prompt.ids.push_back(kNotFiniteId);
  request.sampling = {.temperature = below(2) ? 0.f : 1.f, .seed = seed};
  request.maxTokens = below(90);
  if (below(2))
    request.stopTokens = {below(37)};
  request.priority = below(8) == 0;
  if (below(8) == 0)
    request.prompt.root = roots.intern({.salt = "s"});
  request.snapshotAt = std::min(common, below(160));
  if (below(8) == 0)
    patience = static_cast<size_t>(1 + below(20));
  request.onToken = [this](const TokenEvent &event) {
    EXPECT_EQ(endings, 0);
    EXPECT_EQ(event.position,
              std::ssize(request.prompt.ids) + std::ssize(drawn));
    drawn.push_back(event.id);
    return drawn.size() < patience;
  };
}

void Sample::check() const {
  EXPECT_EQ(endings, 1);
  std::vector<int32_t> expected =
      isInvalid ? std::vector<int32_t>() : hashAnswer(request);
  if (reason == EndReason::Failed) {
    EXPECT_TRUE(isInvalid);
    EXPECT_EQ(kind, ErrorKind::NotFinite);
  } else if (reason == EndReason::Callback) {
    expected.resize(patience);
  } else if (reason == EndReason::Cancelled) {
    ASSERT_LE(drawn.size(), expected.size());
    expected.resize(drawn.size());
  } else {
    EXPECT_EQ(reason == EndReason::Stop,
              !expected.empty() &&
                  std::ranges::count(request.stopTokens, expected.back()) > 0);
  }
  EXPECT_EQ(drawn, expected);
}

namespace {
class SchedulerTest : public testing::Test {
protected:
  /// Submits a sample until the queue has room.
  RequestId submit(Scheduler &scheduler, Sample &sample) {
    for (;;) {
      Request request = sample.request;
      request.onEnd = [&](const Ending &ending) {
        ++sample.endings;
        sample.reason = ending.reason;
        sample.kind = ending.kind;
        EXPECT_EQ(ending.drawnTokens, std::ssize(sample.drawn));
        ended.fetch_add(1);
        ended.notify_all();
      };
      try {
        return scheduler.submit(std::move(request));
      } catch (const Error &error) {
        EXPECT_EQ(error.kind(), ErrorKind::QueueFull);
        refused.fetch_add(1);
        std::this_thread::yield();
      }
    }
  }

  void awaitEnded(size_t count) {
    for (size_t now = ended; now < count; now = ended)
      ended.wait(now);
  }

  /// Submits, cancels, fails and preempts `total` requests of several threads.
  void runMany(size_t total, bool fixed);

  std::atomic<size_t> ended = 0;
  std::atomic<size_t> refused = 0;
};
} // namespace

void SchedulerTest::runMany(size_t total, bool fixed) {
  constexpr size_t kThreads = 4;
  const Manifest manifest = hashManifest(300, 16, fixed);
  ThreadPool pool(2);
  Engine engine(
      manifest, nullptr, {fixed ? fixedHashForward : hashForward}, pool,
      {.sequences = 6, .kvPages = fixed ? 8 : 13, .snapshotBytes = 5 * 128});
  std::vector<std::unique_ptr<Sample>> samples;
  for (size_t i = 0; i < total; ++i)
    samples.push_back(std::make_unique<Sample>(i));
  {
    Scheduler scheduler(engine,
                        {.queue = 24, .batcher = {.snapshotEvery = 48}});
    const auto submitAll = [&](size_t first) {
      std::mt19937_64 random(first);
      for (size_t i = first; i < total; i += kThreads) {
        const RequestId id = submit(scheduler, *samples[i]);
        EXPECT_LE(scheduler.counts().running, 6u);
        if (random() % 8 == 0)
          scheduler.cancel(id - random() % 8);
      }
    };
    {
      std::vector<std::thread> threads;
      for (size_t t = 0; t < kThreads; ++t)
        threads.emplace_back(submitAll, t);
      for (std::thread &thread : threads)
        thread.join();
    }
    awaitEnded(total);
    EXPECT_GT(scheduler.counts().sums.preemptions, 0);
    EXPECT_GT(scheduler.counts().sums.cachedTokens, 0);
    EXPECT_GT(refused, 0u);
  }
  EXPECT_EQ(engine.state().freePages(), engine.state().pages());
  int64_t kept = 0;
  for (PageId page = 0; page < engine.state().pages(); ++page)
    kept += engine.state().serial(page) != 0;
  EXPECT_EQ(engine.state().keptPages(), kept);
  EXPECT_GT(kept, 0);
  std::vector<size_t> reasons(5);
  for (const std::unique_ptr<Sample> &sample : samples) {
    sample->check();
    ++reasons[static_cast<size_t>(sample->reason)];
  }
  for (size_t count : reasons)
    EXPECT_GT(count, 0u);
}

TEST_F(SchedulerTest, NothingIsLostAndNothingComesTwice) {
  runMany(std::getenv("QWEN_TEST_FULL") ? 10000 : 800, /*fixed=*/false);
}

TEST_F(SchedulerTest, FixedStateBelongsToItsSequence) {
  runMany(std::getenv("QWEN_TEST_FULL") ? 10000 : 800, /*fixed=*/true);
}

TEST_F(SchedulerTest, ItsEndCancelsAll) {
  const Manifest manifest = hashManifest(300, 16);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {hashForward}, pool, {.sequences = 2});
  std::vector<std::unique_ptr<Sample>> samples;
  {
    Scheduler scheduler(engine);
    for (size_t i = 0; i < 20; ++i)
      submit(scheduler, *samples.emplace_back(std::make_unique<Sample>(i)));
  }
  EXPECT_EQ(ended, 20u);
  for (const std::unique_ptr<Sample> &sample : samples)
    sample->check();
  EXPECT_EQ(engine.state().freePages(), engine.state().pages());
}

// A request's functions may use the scheduler.
TEST_F(SchedulerTest, ARequestMayFollowAnother) {
  const Manifest manifest = hashManifest(300, 16);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {hashForward}, pool);
  Scheduler scheduler(engine);
  Sample second(2);
  Request first;
  first.prompt.ids = {1, 2, 3};
  first.onToken = [&](const TokenEvent &) {
    submit(scheduler, second);
    return false;
  };
  scheduler.submit(std::move(first));
  awaitEnded(1);
  second.check();
}

TEST_F(SchedulerTest, TheQueueIsBounded) {
  const Manifest manifest = hashManifest(300, 16);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {hashForward}, pool);
  Scheduler scheduler(engine, {.queue = 0});
  EXPECT_EQ(messageOf([&] { scheduler.submit({.prompt = {.ids = {40}}}); }),
            "token id 40 is not in the model's vocabulary of 40");
  // A request that ends makes room before it says so.
  std::atomic<int> ended = 0;
  Request request = {.prompt = {.ids = {1}}, .maxTokens = 1};
  request.onEnd = [&](const Ending &) {
    Request next = {.prompt = {.ids = {2}}, .maxTokens = 1};
    next.onEnd = [&](const Ending &) {
      ended = 1;
      ended.notify_all();
    };
    scheduler.submit(std::move(next));
  };
  scheduler.submit(request);
  ended.wait(0);
}

// All come before the scheduler has started any but the first.
TEST_F(SchedulerTest, ABurstTakesSequencesAndQueue) {
  constexpr size_t kSequences = 4, kQueue = 6;
  const Manifest manifest = hashManifest(300, 16);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {hashForward}, pool,
                {.sequences = kSequences});
  Scheduler scheduler(engine, {.queue = kQueue});
  std::atomic<bool> go = false;
  std::vector<std::unique_ptr<Sample>> samples;
  for (size_t i = 0; i < kSequences + kQueue; ++i) {
    Sample &sample = *samples.emplace_back(std::make_unique<Sample>(i));
    sample.request.onStart = [&] { go.wait(false); };
    submit(scheduler, sample);
  }
  EXPECT_EQ(refused, 0U);
  // So does a series, however long it is.
  EXPECT_EQ(messageOf([&] {
              scheduler.submit({.prompt = {.ids = {1}}},
                               [] { return Request{.prompt = {.ids = {1}}}; });
            }),
            "the queue is full: 6 requests wait");
  go = true;
  go.notify_all();
  awaitEnded(samples.size());
  for (const std::unique_ptr<Sample> &sample : samples)
    sample->check();
}

namespace {
/// A sample whose reader lags behind its first tokens, as long as `lags`.
struct LaggingSample : Sample {
  LaggingSample(uint64_t seed, const std::atomic<bool> &lags) : Sample(seed) {
    request.maxTokens = 40;
    request.stopTokens.clear();
    request.isHeld = [this, &lags] { return lags && drawn.size() >= 3; };
  }
};

/// The seed of a sample whose answer is whole and long.
uint64_t wholeSeed(uint64_t number) {
  for (uint64_t seed = 1000 * number;; ++seed)
    if (const Sample sample(seed); !sample.isInvalid && sample.patience == 1000)
      return seed;
}
} // namespace

TEST_F(SchedulerTest, AnswersThatNobodyReadsLeaveTheBatchAndTheQueue) {
  constexpr size_t kLagging = 4;
  const Manifest manifest = hashManifest(300, 16);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {hashForward}, pool, {.sequences = 2});
  std::atomic<bool> lags = true;
  std::vector<std::unique_ptr<LaggingSample>> samples;
  Sample other(wholeSeed(90));
  {
    Scheduler scheduler(engine, {.queue = 2});
    const auto awaitHeld = [&](size_t count) {
      while (scheduler.counts().held != count)
        std::this_thread::yield();
    };
    std::vector<RequestId> ids;
    for (size_t i = 0; i < kLagging; ++i)
      ids.push_back(submit(
          scheduler, *samples.emplace_back(
                         std::make_unique<LaggingSample>(wholeSeed(i), lags))));
    awaitHeld(kLagging);
    EXPECT_EQ(scheduler.counts().running, 0U);
    EXPECT_EQ(scheduler.counts().waiting, kLagging);
    // They take no place of the queue, and no sequence.
    submit(scheduler, other);
    awaitEnded(1);
    EXPECT_EQ(refused, 0U);
    other.check();
    // One leaves for ever, ...
    scheduler.cancel(ids[0]);
    awaitEnded(2);
    EXPECT_EQ(samples[0]->reason, EndReason::Cancelled);
    awaitHeld(kLagging - 1);
    // ... and the others go on where they were.
    lags = false;
    scheduler.wake();
    awaitEnded(1 + kLagging);
    EXPECT_EQ(scheduler.counts().sums.preemptions, 0);
    // The end cancels those that are held.
    lags = true;
    samples.push_back(std::make_unique<LaggingSample>(wholeSeed(91), lags));
    submit(scheduler, *samples.back());
    awaitHeld(1);
  }
  EXPECT_EQ(samples.back()->reason, EndReason::Cancelled);
  EXPECT_EQ(samples[1]->drawn.size(), 40U);
  for (const auto &sample : samples)
    sample->check();
  EXPECT_EQ(engine.state().freePages(), engine.state().pages());
}

TEST_F(SchedulerTest, MemoryThatLacksEndsOneRequest) {
  const Manifest manifest = hashManifest(300, 16);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {hashForward}, pool, {.sequences = 3});
  const auto lack = [](auto &&...) -> bool { throw std::bad_alloc(); };
  const std::vector<std::function<void(Request &)>> places = {
      [&](Request &of) { of.onStart = lack; },
      [](Request &of) {
        of.onToken = [told = of.onToken](const TokenEvent &event) -> bool {
          told(event);
          throw std::bad_alloc();
        };
      },
      [&](Request &of) { of.onProgress = lack; },
      [](Request &of) {
        of.onDraw = [](auto &&...) -> std::optional<int32_t> {
          throw std::bad_alloc();
        };
      },
      [&](Request &of) {
        of.beams.beams = 2;
        of.onAnswers = lack;
        of.sampling = {};
        of.stopTokens.clear();
        of.onToken = {};
      }};
  Scheduler scheduler(engine);
  size_t count = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    Sample poor(wholeSeed(i)), rich(wholeSeed(10 + i));
    poor.request.maxTokens = 20;
    places[i](poor.request);
    submit(scheduler, rich);
    submit(scheduler, poor);
    awaitEnded(count += 2);
    EXPECT_EQ(poor.reason, EndReason::Failed) << i;
    EXPECT_EQ(poor.kind, ErrorKind::NoMemory) << i;
    EXPECT_EQ(poor.endings, 1) << i;
    rich.check();
  }
  // Neither does a request that follows another in a series.
  Sample first(wholeSeed(20));
  const auto noRequest = []() -> std::optional<Request> {
    throw std::bad_alloc();
  };
  first.request.onEnd = [&](const Ending &ending) {
    first.reason = ending.reason;
    ended.fetch_add(1);
    ended.notify_all();
  };
  scheduler.submit(first.request, noRequest);
  awaitEnded(count + 1);
  EXPECT_EQ(first.reason, EndReason::Failed);
}
