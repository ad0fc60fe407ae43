//===- ModelPoolTest.cpp - Models that are loaded on demand ---------------===//

#include "model/ModelPool.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>

using namespace qwen;
using namespace std::chrono_literals;

namespace {

/// A model without an engine, which takes memory as an engine does.
class Pretended final : public LoadedModel {
public:
  Pretended(MemoryBudget &budget, uint64_t bytes, std::atomic<int> &ofAll)
      : lease(budget.take("pretended",
                          std::array{MemoryNeed{.use = MemoryUse::Weights,
                                                .bytes = bytes,
                                                .least = bytes}})),
        count(ofAll) {
    ++count;
  }
  ~Pretended() override { --count; }
  uint64_t bytes() const override { return lease.bytes(); }

private:
  const MemoryLease lease;
  std::atomic<int> &count;
};

/// A pool of models a, b and c, whose budget is 100 bytes.
class ModelPoolTest : public testing::Test {
protected:
  ModelPoolTest() { budget->limitTo(100, "--max-memory"); }

  PoolModel model(const std::string &name, uint64_t bytes) {
    return {.name = name,
            .prepare =
                [bytes, this](const LoadProgressFn &tell) {
                  EXPECT_EQ(++loading, 1) << "two loads at a time";
                  tell({.stage = "compiles", .done = 1, .total = 2});
                  --loading;
                  return bytes;
                },
            .load =
                [bytes, this] {
                  EXPECT_EQ(++loading, 1) << "two loads at a time";
                  auto made =
                      std::make_unique<Pretended>(*budget, bytes, loaded);
                  --loading;
                  return made;
                }};
  }

  /// Waits for a lease, or throws why the load failed.
  static ModelPool::Lease wait(ModelPool &pool, size_t index) {
    struct Result {
      ModelPool::Lease lease;
      LoadFailure failure;
    };
    const auto promise = std::make_shared<std::promise<Result>>();
    pool.acquire(index, [promise](const ModelPool::Lease &lease,
                                  const LoadFailure &failure) {
      promise->set_value({lease, failure});
    });
    const Result result = promise->get_future().get();
    if (!result.lease)
      throw Error(result.failure.text, result.failure.kind);
    return result.lease;
  }

  static std::string errorOf(ModelPool &pool, size_t index) {
    try {
      wait(pool, index);
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  }

  static void waitUnloaded(const ModelPool &pool, size_t index) {
    while (pool.status(index).state == ModelState::Loaded)
      std::this_thread::sleep_for(1ms);
  }

  const std::shared_ptr<MemoryBudget> budget =
      std::make_shared<MemoryBudget>("/nowhere");
  std::atomic<int> loading = 0, loaded = 0;
};

TEST_F(ModelPoolTest, LoadsAModelOnceForAllWhoWait) {
  ModelPool pool({model("a", 10), model("b", 10)}, budget, {});
  EXPECT_EQ(pool.status(0).state, ModelState::Unloaded);
  EXPECT_EQ(pool.find(0), nullptr);
  std::latch left(8);
  for (size_t i = 0; i < 8; ++i)
    pool.acquire(i % 2,
                 [&](const ModelPool::Lease &lease, const LoadFailure &) {
                   EXPECT_NE(lease, nullptr);
                   left.count_down();
                 });
  left.wait();
  for (size_t i : {0, 1}) {
    EXPECT_NE(pool.find(i), nullptr);
    EXPECT_EQ(pool.status(i).loads, 1U);
    EXPECT_EQ(pool.status(i).bytes, 10U);
  }
  EXPECT_EQ(loaded, 2);
}

TEST_F(ModelPoolTest, TheLeastRecentlyUsedModelGoesWhereMemoryLacks) {
  std::vector<std::string> lines;
  ModelPool pool({model("a", 40), model("b", 40), model("c", 50)}, budget,
                 {.log = [&](const std::string &line) {
                   if (line.find("unloaded") != line.npos)
                     lines.push_back(line);
                 }});
  wait(pool, 1);
  wait(pool, 0);
  // A look is no use.
  EXPECT_NE(pool.peek(1), nullptr);
  wait(pool, 2);
  EXPECT_EQ(pool.status(0).state, ModelState::Loaded);
  EXPECT_EQ(pool.status(1).state, ModelState::Unloaded);
  EXPECT_EQ(lines,
            std::vector<std::string>{"b is unloaded: c needs its memory"});
}

TEST_F(ModelPoolTest, AModelWithRequestsIsNeverUnloaded) {
  ModelPool pool({model("a", 40), model("b", 40), model("c", 70)}, budget,
                 {.idle = 1ms});
  const ModelPool::Lease used = wait(pool, 0);
  wait(pool, 1);
  waitUnloaded(pool, 1);
  EXPECT_EQ(errorOf(pool, 2),
            "c needs 70 bytes of memory when --max-memory "
            "allows 100 bytes and other models and caches have 40");
  EXPECT_EQ(pool.status(0).state, ModelState::Loaded);
  EXPECT_EQ(pool.status(0).users, 1U);
  try {
    pool.unload(0);
    ADD_FAILURE() << "unloaded";
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(), "a answers 1 request; it can be unloaded when "
                               "none is left");
  }
}

TEST_F(ModelPoolTest, AModelThatCannotFitDisplacesNoOther) {
  ModelPool pool({model("a", 40), model("b", 101)}, budget, {});
  wait(pool, 0);
  EXPECT_EQ(errorOf(pool, 1),
            "b needs 101 bytes of memory when --max-memory "
            "allows 100 bytes and other models and caches have 40");
  EXPECT_EQ(pool.status(0).state, ModelState::Loaded);
  // It fits as soon as the memory is there.
  budget->limitTo(200, "--max-memory");
  EXPECT_NE(wait(pool, 1), nullptr);
}

TEST_F(ModelPoolTest, AModelIsUnloadedWhenItHasBeenIdle) {
  ModelPool pool({model("a", 10)}, budget, {.idle = 20ms});
  for (int i = 0; i < 2; ++i) {
    {
      const ModelPool::Lease used = wait(pool, 0);
      std::this_thread::sleep_for(60ms);
      EXPECT_EQ(pool.status(0).state, ModelState::Loaded);
    }
    waitUnloaded(pool, 0);
  }
  EXPECT_EQ(pool.status(0).loads, 2U);
}

TEST_F(ModelPoolTest, AFailureIsToldAndTriedAgainLater) {
  int tries = 0;
  PoolModel broken = model("a", 10);
  broken.prepare = [&](const LoadProgressFn &) -> uint64_t {
    ++tries;
    throw Error("a.qwen is damaged");
  };
  ModelPool pool({broken, model("b", 10)}, budget, {.retry = 1h});
  EXPECT_EQ(errorOf(pool, 0), "a.qwen is damaged");
  EXPECT_EQ(errorOf(pool, 0), "a.qwen is damaged");
  EXPECT_EQ(tries, 1);
  EXPECT_EQ(pool.status(0).failure, "a.qwen is damaged");
  EXPECT_NE(wait(pool, 1), nullptr);
  // Whoever asks for a load gets one.
  pool.load(0);
  while (pool.status(0).state != ModelState::Unloaded)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(tries, 2);
}

TEST_F(ModelPoolTest, TheEndStopsALoadAndTellsWhoWaits) {
  std::latch started(1);
  PoolModel slow = model("a", 10);
  slow.prepare = [&](const LoadProgressFn &tell) -> uint64_t {
    started.count_down();
    while (true) {
      tell({.stage = "compiles"});
      std::this_thread::sleep_for(1ms);
    }
  };
  int ends = 0;
  const auto count = [&](const ModelPool::Lease &lease,
                         const LoadFailure &failure) {
    EXPECT_EQ(lease, nullptr);
    EXPECT_EQ(failure.kind, ErrorKind::Cancelled);
    ++ends;
  };
  {
    ModelPool pool({slow, model("b", 10)}, budget, {.queue = 2});
    pool.acquire(0, count);
    pool.acquire(1, count);
    EXPECT_THROW(pool.acquire(1, count), Error);
    started.wait();
    EXPECT_EQ(pool.status(0).state, ModelState::Loading);
    EXPECT_EQ(pool.status(1).state, ModelState::Waiting);
    EXPECT_THROW(pool.unload(1), Error);
  }
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(loaded, 0);
}

TEST_F(ModelPoolTest, ManyThreadsUseModelsThatTakeTurns) {
  ModelPool pool({model("a", 60), model("b", 60)}, budget, {.queue = 1000});
  std::atomic<int> answers = 0;
  constexpr size_t kCallers = 4;
  std::vector<std::jthread> callers;
  callers.reserve(kCallers);
  for (size_t caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&, caller] {
      for (size_t i = 0; i < 50; ++i)
        try {
          wait(pool, (caller + i) % 2);
          ++answers;
        } catch (const Error &error) {
          EXPECT_EQ(error.kind(), ErrorKind::NoMemory) << error.what();
        }
    });
  callers.clear();
  EXPECT_GT(answers, 0);
  EXPECT_LE(loaded, 1);
}

} // namespace
