//===- EnginesTest.cpp - Several engines in a process ---------------------===//

#include "HashModel.h"
#include "TempDir.h"
#include "engine/Scheduler.h"
#include "model/MakeEngine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <thread>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr uint64_t kPage = 8192;

/// A budget of a machine with this memory.
std::shared_ptr<MemoryBudget> budgetOf(uint64_t bytes) {
  auto budget = std::make_shared<MemoryBudget>("/nowhere");
  budget->limitTo(bytes, "--max-memory");
  return budget;
}
} // namespace

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

// Each model has one thread of the caller that submits, and its scheduler's.
TEST(Engines, OfTwoModelsGiveTheAnswersThatEachGivesAlone) {
  const Manifest paged = hashManifest(400, 16),
                 fixed = hashManifest(300, 8, /*fixed=*/true);
  ThreadPool pool(3);
  Engine first(paged, nullptr, {hashForward}, pool, {.sequences = 4}),
      second(fixed, nullptr, {fixedHashForward}, pool,
             {.sequences = 3, .snapshotEvery = 32});
  std::vector<Request> requests(12);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t j = 0; j < 20 + 13 * i; ++j)
      requests[i].prompt.ids.push_back(static_cast<int32_t>((i * j + j) % 37));
    requests[i].sampling = {.temperature = i % 2 ? 1.f : 0.f, .seed = i};
    requests[i].maxTokens = 40;
  }
  std::vector<std::jthread> callers;
  for (Engine *engine : {&first, &second})
    callers.emplace_back([&requests, engine] {
      Scheduler scheduler(*engine);
      std::vector<std::vector<int32_t>> answers(requests.size());
      std::latch left(std::ssize(requests));
      for (size_t i = 0; i < requests.size(); ++i) {
        Request request = requests[i];
        request.onToken = [&answer = answers[i]](const TokenEvent &event) {
          answer.push_back(event.id);
          return true;
        };
        request.onEnd = [&](const Ending &ending) {
          EXPECT_NE(ending.reason, EndReason::Failed) << ending.error;
          left.count_down();
        };
        scheduler.submit(std::move(request));
      }
      left.wait();
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(answers[i], hashAnswer(requests[i])) << i;
    });
}

namespace {
/// The calls of two engines, in their order, by the weights that they have.
struct Calls {
  ThreadPool pool{1};
  std::vector<const uint8_t *> order;
  /// Set when a caller has made its last call.
  std::atomic<bool> isOver = false;
};
Calls *calls;

/// Each call lasts until the other engine waits for its turn.
void turnForward(const Context *context, int32_t, int32_t) {
  calls->order.push_back(context->images[0]);
  while (calls->pool.callers() < 2 && !calls->isOver)
    std::this_thread::yield();
}
} // namespace

// A prompt of 20 calls in one batch, and as many tokens that are decoded.
TEST(Engines, TakeTurns) {
  constexpr int64_t kCalls = 20;
  Calls made;
  calls = &made;
  const Manifest manifest = hashManifest(400, 8);
  const uint8_t weights[2] = {};
  Engine prompt(manifest, weights, {turnForward}, made.pool),
      decode(manifest, weights + 1, {turnForward}, made.pool);
  {
    std::jthread other([&] {
      const SequenceId sequence = decode.state().open();
      for (int64_t position = 0; position < kCalls; ++position) {
        const Token token = {1, sequence, position, false};
        decode.forward({&token, 1}, [](size_t, std::span<float>) {});
      }
      made.isOver = true;
    });
    const SequenceId sequence = prompt.state().open();
    std::vector<Token> batch;
    for (int64_t position = 0; position < kCalls * 8; ++position)
      batch.push_back({1, sequence, position, false});
    prompt.forward(batch, [](size_t, std::span<float>) {});
    made.isOver = true;
  }
  ASSERT_EQ(made.order.size(), 2u * kCalls);
  for (size_t i = 1; i < made.order.size(); ++i)
    EXPECT_NE(made.order[i], made.order[i - 1]) << "call " << i;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TEST(MemoryBudget, GivesLeastFirstAndTheRestInOrder) {
  using enum MemoryUse;
  const auto budget = budgetOf(1000);
  EXPECT_EQ(budget->free(), 1000u);
  const MemoryNeed needs[] = {
      {.use = Calls, .bytes = 100, .least = 100},
      {.use = Snapshots, .bytes = 900, .least = 0, .unit = 50, .divisor = 4},
      {.use = Pages, .bytes = 400, .least = 10, .unit = 10}};
  {
    const MemoryLease first = budget->take("a", needs);
    // A quarter of 890 in units of 50, and 390 of the 690 that are left.
    EXPECT_EQ(first.bytes(Calls), 100u);
    EXPECT_EQ(first.bytes(Snapshots), 200u);
    EXPECT_EQ(first.bytes(Pages), 400u);
    EXPECT_EQ(first.bytes(), 700u);
    EXPECT_EQ(budget->free(), 300u);
    const MemoryLease second = budget->take("b", needs);
    EXPECT_EQ(second.bytes(Snapshots), 0u);
    EXPECT_EQ(second.bytes(Pages), 200u);
    EXPECT_EQ(budget->free(), 0u);
    EXPECT_EQ(messageOf([&] { (void)budget->take("c", needs); }),
              "c needs at least 110 bytes of memory (calls 100, the KV cache "
              "10) when --max-memory allows 1000 bytes and other models and "
              "caches have 1000");
  }
  EXPECT_EQ(budget->free(), 1000u);
}

TEST(MemoryBudget, MappedWeightsMakeRoom) {
  using enum MemoryUse;
  const auto budget = budgetOf(1000);
  const auto take = [&](uint64_t locked) {
    const MemoryNeed needs[] = {
        {.use = Pages, .bytes = 300, .least = 100, .displacesWeights = true},
        {.use = Weights, .bytes = 900, .least = locked},
        {.use = Pages, .bytes = 500, .least = 0}};
    return budget->take("model", needs);
  };
  const MemoryLease first = take(0);
  EXPECT_EQ(first.bytes(Pages), 300u);
  EXPECT_EQ(first.bytes(Weights), 700u);
  // The second has no memory that nobody has, but that of the weights.
  const MemoryLease second = take(0);
  EXPECT_EQ(second.bytes(Pages), 300u);
  EXPECT_EQ(second.bytes(Weights), 0u);
  EXPECT_EQ(messageOf([&] { (void)take(900); }),
            "model needs at least 1000 bytes of memory (the KV cache 100, "
            "locked weights 900) when --max-memory allows 1000 bytes and other "
            "models and caches have 600");
}

TEST(MemoryBudget, IsThatOfTheGroupOrTheMachine) {
  const TempDir dir;
  const std::string root = dir.path().string();
  const auto write = [&](const std::string &name, const std::string &text) {
    std::filesystem::create_directories(
        std::filesystem::path(root + name).parent_path());
    std::ofstream(root + name) << text;
  };
  write("/proc/meminfo", "MemTotal: 64 kB\n");
  EXPECT_EQ(MemoryBudget(root).describe(), "this machine has 65536 bytes");
  write("/proc/self/cgroup", "0::/a");
  write("/sys/fs/cgroup/a/memory.max", "9000");
  MemoryBudget budget(root);
  EXPECT_EQ(budget.describe(), "its control group allows 9000 bytes");
  budget.limitTo(100, "--max-memory");
  EXPECT_EQ(budget.describe(), "--max-memory allows 100 bytes");
  // More than there is is of no use.
  budget.limitTo(9001, "--max-memory");
  EXPECT_EQ(budget.describe(), "its control group allows 9000 bytes");
  write("/sys/fs/cgroup/a/memory.max", "70000");
  EXPECT_EQ(MemoryBudget(root).describe(), "this machine has 65536 bytes");
}

TEST(Engines, ShareTheMemoryOfAProcess) {
  const std::string path = HandmadeArtifact().write("engines.qwen");
  const auto pool = std::make_shared<ThreadPool>(1);
  const Model model(path);
  const auto pagesOf = [&](const std::shared_ptr<MemoryBudget> &budget) {
    return makeEngine(model, pool, budget, {.kvPages = 10});
  };
  // What an engine needs beside pages and weights.
  const std::string needs = "handmade needs at least ";
  const uint64_t fixed = std::stoull(messageOf([&] {
                                       pagesOf(budgetOf(1));
                                     }).substr(needs.size())) -
                         kPage;
  const auto budget = budgetOf(2 * fixed + 13 * kPage);
  auto first = pagesOf(budget);
  const auto second = pagesOf(budget);
  EXPECT_EQ(first->state().pages(), 10);
  // The weights of the first have 64 bytes.
  EXPECT_EQ(second->state().pages(), 2);
  EXPECT_EQ(second->state().describeFull(),
            "all 2 pages of the KV cache are in use (--max-memory allows " +
                std::to_string(2 * fixed + 13 * kPage) +
                " bytes and other models and caches have " +
                std::to_string(fixed + 10 * kPage) + ")");
  const std::string message = messageOf([&] { pagesOf(budget); });
  EXPECT_TRUE(message.starts_with(needs + std::to_string(fixed + kPage) +
                                  " bytes of memory (process "))
      << message;
  first.reset();
  EXPECT_EQ(pagesOf(budget)->state().pages(), 10);
  // A store gets copies of pages.
  EXPECT_EQ(leastMemory(model.artifact(), {.isStored = true}),
            leastMemory(model.artifact(), {}) + kPage);
  unlink(path.c_str());
}
