//===- GrammarThreadsTest.cpp - Threads that make grammars ----------------===//

#include "server/GrammarThreads.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

using namespace qwen;
using namespace qwen::server;

TEST(GrammarThreadsTest, DoEachWorkOnce) {
  constexpr int kCount = 100;
  std::atomic<int> done = 0;
  std::latch all(kCount);
  // Whoever waits for the work is woken behind it.
  GrammarThreads threads(GrammarThreads::kThreads, [&] { all.count_down(); });
  for (int i = 0; i < kCount; ++i)
    threads.run({}, [&] { ++done; });
  all.wait();
  EXPECT_EQ(done, kCount);
}

// Work that waits or runs is told to stop, and still done: it ends its request.
TEST(GrammarThreadsTest, StopAtTheirEnd) {
  constexpr size_t kWaiting = 10;
  std::atomic<size_t> stopped = 0;
  std::latch running(GrammarThreads::kThreads);
  {
    GrammarThreads threads;
    const auto add = [&](bool isFirst) {
      const std::stop_source stop;
      threads.run(stop, [&, stop, isFirst] {
        if (isFirst)
          running.count_down();
        while (!stop.stop_requested())
          std::this_thread::yield();
        ++stopped;
      });
    };
    for (size_t i = 0; i < GrammarThreads::kThreads; ++i)
      add(true);
    running.wait();
    for (size_t i = 0; i < kWaiting; ++i)
      add(false);
  }
  EXPECT_EQ(stopped, GrammarThreads::kThreads + kWaiting);
}

TEST(GrammarThreadsTest, HaveABoundedQueue) {
  std::latch end(1);
  std::latch running(1);
  GrammarThreads threads(1);
  threads.run({}, [&] {
    running.count_down();
    end.wait();
  });
  running.wait();
  for (size_t i = 0; i < GrammarThreads::kMostWaiting; ++i)
    threads.run({}, [] {});
  try {
    threads.run({}, [] {});
    ADD_FAILURE();
  } catch (const Error &error) {
    EXPECT_EQ(error.kind(), ErrorKind::QueueFull);
  }
  end.count_down();
}
