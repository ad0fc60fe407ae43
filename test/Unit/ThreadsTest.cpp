//===- ThreadsTest.cpp - Threads, their shares of work and their trace ----===//

#include "HandmadeArtifact.h"
#include "TempDir.h"
#include "engine/CpuCount.h"
#include "engine/ThreadPool.h"
#include "engine/Tracer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int kRounds = 200;
std::atomic<int> counters[kRounds];
std::atomic<int> mistakes;

void countRounds(const Context *context, int32_t thread, int32_t threads) {
  for (std::atomic<int> &counter : counters) {
    counter.fetch_add(1, std::memory_order_relaxed);
    context->barrier(context->barrierState, thread);
    if (counter.load(std::memory_order_relaxed) % threads != 0)
      mistakes.fetch_add(1);
    context->barrier(context->barrierState, thread);
  }
}

std::atomic<int> otherEnvironments;

uint64_t floatControl() {
#if defined(__x86_64__)
  return _mm_getcsr() & 0xFFC0;
#else
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
#endif
}

void checkEnvironment(const Context *, int32_t, int32_t) {
#if defined(__x86_64__)
  constexpr uint64_t kNeeded = 0x1F80;
#else
  constexpr uint64_t kNeeded = 0;
#endif
  if (floatControl() != kNeeded)
    otherEnvironments.fetch_add(1);
}
} // namespace

TEST(ThreadPool, BarriersHoldEveryThread) {
  for (int32_t threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    Context context = {};
    pool.bind(context);
    for (std::atomic<int> &counter : counters)
      counter = 0;
    for (int run = 0; run < 3; ++run)
      pool.run(countRounds, context);
    EXPECT_EQ(mistakes, 0);
    for (std::atomic<int> &counter : counters)
      ASSERT_EQ(counter, 3 * threads);
  }
}

// If threads share a CPU, a waiting thread must let the others run.
TEST(ThreadPool, BarriersHoldOnOneCpu) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(affinityCpus().front(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  {
    ThreadPool pool(4);
    Context context = {};
    pool.bind(context);
    for (std::atomic<int> &counter : counters)
      counter = 0;
    pool.run(countRounds, context);
  }
  EXPECT_EQ(mistakes, 0);
  for (std::atomic<int> &counter : counters)
    EXPECT_EQ(counter, 4);
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

/// Two ops with a barrier between them.
static void tracedForward(const Context *context, int32_t thread, int32_t) {
  for (int32_t op : {0, 1, 2}) {
    if (op == 1)
      context->barrier(context->barrierState, thread);
    if (context->trace)
      context->trace(context->traceState, thread, op);
  }
}

TEST(Tracer, SeesOpsAndBarriersOfEveryThread) {
  ThreadPool pool(3);
  Context context = {};
  pool.bind(context);
  pool.run(tracedForward, context);
  Tracer tracer(3);
  tracer.bind(context);
  for (int round = 0; round < 2; ++round) {
    tracer.clear();
    EXPECT_TRUE(tracer.taken().empty());
    pool.run(tracedForward, context);
    tracer.addCall({4, 0});
    EXPECT_EQ(tracer.taken(), (std::vector<std::vector<uint32_t>>{{4, 0}}));
    for (int32_t thread = 0; thread < 3; ++thread) {
      std::vector<int32_t> ops;
      int64_t last = 0;
      for (const Tracer::Event &event : tracer.events(thread)) {
        ops.push_back(event.op);
        EXPECT_GE(event.nanoseconds, last);
        last = event.nanoseconds;
      }
      EXPECT_EQ(ops, (std::vector<int32_t>{0, Tracer::kBarrier, 1, 2}));
      // No thread leaves before all have arrived.
      for (int32_t other = 0; other < 3; ++other)
        EXPECT_GE(tracer.events(thread)[2].nanoseconds,
                  tracer.events(other)[1].nanoseconds);
    }
  }
}

TEST(WorkShares, CoverEverything) {
  for (int32_t threads : {1, 2, 3, 5, 100}) {
    const WorkShares work(threads);
    const std::span<const uint32_t> shares = work.table();
    ASSERT_EQ(shares.size(), static_cast<size_t>(threads) + 1);
    EXPECT_EQ(shares.front(), 0u);
    EXPECT_EQ(shares.back(), 65536u);
    EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  }
}

namespace {
/// Simulates `runs` runs on cores of these speeds. A phase takes `nanoseconds`
/// if all speeds are 1.
void runOn(WorkShares &work, const std::vector<double> &speeds, int runs,
           double nanoseconds = 1e6) {
  for (int run = 0; run < runs; ++run) {
    for (size_t t = 0; t < speeds.size(); ++t) {
      const double share = work.table()[t + 1] - work.table()[t];
      const auto thread = static_cast<int32_t>(t);
      work.record(thread, 0,
                  static_cast<int64_t>(share / 65536 * nanoseconds *
                                       static_cast<double>(speeds.size()) /
                                       speeds[t]));
      // One token, which the first thread runs, and a barrier.
      work.record(thread, 1, t == 0 ? 4'000'000 : 0);
      work.record(thread, 2, t == 0 ? 0 : 4000);
    }
    work.adapt(3);
    EXPECT_TRUE(std::is_sorted(work.table().begin(), work.table().end()));
    EXPECT_EQ(work.table().front(), 0u);
    EXPECT_EQ(work.table().back(), 65536u);
  }
}

std::vector<double> sharesOf(const WorkShares &work) {
  std::vector<double> result;
  for (size_t t = 0; t + 1 < work.table().size(); ++t)
    result.push_back((work.table()[t + 1] - work.table()[t]) / 65536.0);
  return result;
}
} // namespace

TEST(WorkShares, FollowTheSpeedOfCores) {
  WorkShares work(4);
  runOn(work, {1, 1, 2.5, 2.5}, 30);
  const std::vector<double> shares = sharesOf(work);
  EXPECT_NEAR(shares[0], 1 / 7., 0.07 / 7);
  EXPECT_NEAR(shares[3], 2.5 / 7, 0.07 * 2.5 / 7);
  runOn(work, {1, 1, 1, 1}, 30);
  for (double share : sharesOf(work))
    EXPECT_NEAR(share, 0.25, 0.02);
}

TEST(WorkShares, StayEqualWhereSpeedsAre) {
  WorkShares work(3);
  const std::vector<double> before = sharesOf(work);
  runOn(work, {1, 0.97, 1.02}, 50);
  EXPECT_EQ(sharesOf(work), before);
  // Phases that mostly wait do not count.
  runOn(work, {1, 3, 1}, 50, 3000);
  EXPECT_EQ(sharesOf(work), before);
}

TEST(WorkShares, OneInterruptionCostsLittle) {
  WorkShares work(2);
  runOn(work, {1, 0.15}, 1);
  EXPECT_GT(sharesOf(work)[1], 0.4);
  runOn(work, {1, 1}, 20);
  EXPECT_NEAR(sharesOf(work)[1], 0.5, 0.03);
}

TEST(WorkShares, EveryThreadIsMeasured) {
  WorkShares work(4);
  runOn(work, {1, 1, 1, 0.12}, 20);
  EXPECT_LT(sharesOf(work)[3], 0.05);
  runOn(work, {1, 1, 1, 1e-3}, 100);
  EXPECT_GT(sharesOf(work)[3], 0.02);
  runOn(work, {1, 1, 1, 1}, 100);
  EXPECT_NEAR(sharesOf(work)[3], 0.25, 0.02);
}

TEST(ThreadPool, SetsAndRestoresTheFloatEnvironment) {
#if defined(__x86_64__)
  _mm_setcsr(0x9FC0); // subnormals to zero, as some hosts have it
#else
  __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{1} << 24));
#endif
  const uint64_t before = floatControl();
  {
    ThreadPool pool(3); // inherits the caller's environment
    Context context = {};
    pool.bind(context);
    pool.run(checkEnvironment, context);
  }
  EXPECT_EQ(otherEnvironments, 0);
  EXPECT_EQ(floatControl(), before);
#if defined(__x86_64__)
  _mm_setcsr(0x1F80);
#else
  __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
#endif
}

TEST(ThreadPool, RefusesImpossibleNumbers) {
  EXPECT_EQ(messageOf([] { ThreadPool pool(0); }),
            "the number of threads is 0 when 1 to 1024 is possible");
  EXPECT_NE(messageOf([] { ThreadPool pool(1025); }), "");
}
