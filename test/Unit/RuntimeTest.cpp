//===- RuntimeTest.cpp - Threads, KV cache, engine ------------------------===//

#include "HandmadeArtifact.h"
#include "engine/CpuCount.h"
#include "engine/Engine.h"
#include "engine/KvCache.h"
#include "engine/ThreadPool.h"

#include "qwen/ABI/ControlGroups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace qwen;
using namespace qwen::test;

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

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

// Where threads share a CPU, one that waits must let the others run.
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
    pool.run(tracedForward, context);
    for (int32_t thread = 0; thread < 3; ++thread) {
      std::vector<int32_t> ops;
      int64_t last = 0;
      for (const Tracer::Event &event : tracer.events(thread)) {
        ops.push_back(event.op);
        EXPECT_GE(event.nanoseconds, last);
        last = event.nanoseconds;
      }
      EXPECT_EQ(ops, (std::vector<int32_t>{0, Tracer::kBarrier, 1, 2}));
      // Nobody has left before all have come.
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
/// Runs phases of `nanoseconds` each, were all of the speed 1, on cores of
/// these speeds, `runs` times.
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
      // One row, which the first thread takes, and a barrier.
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
  // Phases that are mostly barrier say nothing.
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
  EXPECT_EQ(errorOf([] { ThreadPool pool(0); }),
            "the number of threads is 0 when 1 to 1024 is possible");
  EXPECT_NE(errorOf([] { ThreadPool pool(1025); }), "");
}

namespace {
/// A tree of /sys and /proc.
class SystemTest : public testing::Test {
protected:
  void SetUp() override {
    root = testing::TempDir() + "/cpus-" + std::to_string(getpid());
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  void write(const std::string &path, const std::string &text) {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void cpu(int number, const std::string &file, const std::string &text) {
    write("/sys/devices/system/cpu/cpu" + std::to_string(number) + "/" + file,
          text);
  }

  std::string root;
};
} // namespace

TEST_F(SystemTest, SiblingsAreOneCore) {
  for (int i = 0; i < 8; ++i)
    cpu(i, "topology/core_cpus_list",
        std::to_string(i % 4) + "," + std::to_string(i % 4 + 4));
  EXPECT_EQ(usableCores({0, 1, 2, 3, 4, 5, 6, 7}, root), 4);
  EXPECT_EQ(usableCores({4, 5}, root), 2);
  EXPECT_EQ(usableCores({1, 5}, root), 1);
  EXPECT_EQ(usableCores({}, root), 1);
}

TEST_F(SystemTest, SlowCoresAreLeftOut) {
  const int capacities[] = {160, 160, 160, 160, 498, 498, 498, 1024};
  for (int i = 0; i < 8; ++i)
    cpu(i, "cpu_capacity", std::to_string(capacities[i]));
  EXPECT_EQ(usableCores({0, 1, 2, 3, 4, 5, 6, 7}, root), 4);
  EXPECT_EQ(usableCores({0, 1, 2}, root), 3);
  EXPECT_EQ(physicalCores({0, 1, 2, 3, 4, 5, 6, 7}, root), 8);
}

TEST_F(SystemTest, EfficientCoresOfHybridsAreLeftOut) {
  write("/sys/devices/cpu_core/cpus", "0-3");
  EXPECT_EQ(usableCores({0, 1, 2, 3, 4, 5}, root), 4);
  EXPECT_EQ(usableCores({4, 5}, root), 2);
  EXPECT_EQ(physicalCores({0, 1, 2, 3, 4, 5}, root), 6);
}

TEST_F(SystemTest, QuotasOfAllGroupsCount) {
  const std::vector<int> cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(usableCores(cpus, root), 8);
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(usableCores(cpus, root), 8);
  write("/sys/fs/cgroup/a/cpu.max", "250000 100000");
  EXPECT_EQ(usableCores(cpus, root), 3);
  write("/sys/fs/cgroup/cpu.max", "10000 100000");
  EXPECT_EQ(usableCores(cpus, root), 1);
}

TEST(UsableThreads, AreNoMoreThanCores) {
  const int cores = physicalCores(affinityCpus());
  EXPECT_EQ(usableThreads(cores + 1), cores);
  EXPECT_EQ(usableThreads(1), 1);
  EXPECT_EQ(usableThreads(0), 0);
}

TEST_F(SystemTest, QuotasOfVersion1Count) {
  write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/a");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(usableCores({0, 1, 2, 3}, root), 2);
}

TEST_F(SystemTest, TheLeastMemoryOfAllGroupsCounts) {
  EXPECT_EQ(controlGroupMemory(root), std::nullopt);
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "max");
  EXPECT_EQ(controlGroupMemory(root), std::nullopt);
  write("/sys/fs/cgroup/a/memory.max", "1048576");
  write("/sys/fs/cgroup/memory.max", "2097152");
  EXPECT_EQ(controlGroupMemory(root), 1048576u);
}

TEST_F(SystemTest, MemoryOfVersion1Counts) {
  write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/a");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(controlGroupMemory(root), std::nullopt);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "65536");
  write("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1");
  EXPECT_EQ(controlGroupMemory(root), 65536u);
}

TEST_F(SystemTest, FreeMemoryIsTheLesserOfSystemAndGroup) {
  EXPECT_EQ(freeMemory(root), std::nullopt);
  write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 7 kB\n"
                         "MemAvailable: 512 kB\nHugePages_Total: 0\n"
                         "Hugepagesize: 2048 kB");
  EXPECT_EQ(freeMemory(root), 524288u);
  write("/proc/self/cgroup", "0::/a");
  write("/sys/fs/cgroup/a/memory.max", "65536");
  EXPECT_EQ(freeMemory(root), 65536u);
}

//===----------------------------------------------------------------------===//
// KV cache
//===----------------------------------------------------------------------===//

TEST(KvCache, PagesAreTakenAsPositionsComeAndGivenBack) {
  KvCache cache(4, 4096, 2, 200);
  EXPECT_EQ(cache.blockTableStride(), 4);
  const SequenceId a = cache.open();
  cache.extend(a, 64);
  EXPECT_EQ(cache.freePages(), 3);
  cache.extend(a, 65);
  EXPECT_EQ(cache.freePages(), 2);
  EXPECT_EQ(cache.length(a), 65);
  EXPECT_NE(cache.blockTables()[0], cache.blockTables()[1]);
  cache.truncate(a, 64);
  EXPECT_EQ(cache.freePages(), 3);
  cache.close(a);
  EXPECT_EQ(cache.freePages(), 4);
  EXPECT_FALSE(cache.isOpen(a));
}

TEST(KvCache, BranchesShareFullPagesAndCopyThePartialOne) {
  KvCache cache(6, 64, 3, 300);
  const SequenceId a = cache.open();
  cache.extend(a, 100);
  const int32_t *tables = cache.blockTables();
  const int64_t stride = cache.blockTableStride();
  memset(cache.pool() + tables[1] * 64, 'x', 64);
  const SequenceId b = cache.branch(a);
  EXPECT_EQ(cache.length(b), 100);
  EXPECT_EQ(tables[b * stride], tables[a * stride]);
  EXPECT_NE(tables[b * stride + 1], tables[a * stride + 1]);
  EXPECT_EQ(cache.pool()[tables[b * stride + 1] * 64 + 63], 'x');
  EXPECT_EQ(cache.freePages(), 3);
  // The shared page stays until both are gone.
  cache.close(a);
  EXPECT_EQ(cache.freePages(), 4);
  // What is truncated into a shared page gets a copy of its own.
  const SequenceId c = cache.branch(b);
  const int32_t shared = tables[b * stride];
  cache.truncate(c, 10);
  EXPECT_EQ(tables[b * stride], shared);
  EXPECT_NE(tables[c * stride], shared);
  cache.close(b);
  cache.close(c);
  EXPECT_EQ(cache.freePages(), 6);
}

TEST(KvCache, SaysWhatRanOut) {
  KvCache cache(2, 64, 2, 200, " (why)");
  const SequenceId a = cache.open();
  EXPECT_EQ(errorOf([&] { cache.extend(a, 201); }),
            "sequence 0 would have 201 positions when the model was compiled "
            "for a context of 200");
  cache.extend(a, 64);
  EXPECT_EQ(errorOf([&] { cache.extend(a, 200); }),
            "the KV cache is full: sequence 0 needs 3 more pages and 1 of 2 "
            "are free (why)");
  EXPECT_EQ(cache.length(a), 64);
  EXPECT_EQ(cache.freePages(), 1);
  cache.extend(a, 128);
  cache.truncate(a, 100);
  EXPECT_EQ(errorOf([&] { cache.branch(a); }),
            "the KV cache is full: all of its 2 pages are in use (why)");
  const SequenceId b = cache.open();
  EXPECT_EQ(errorOf([&] { cache.open(); }), "all 2 sequences are open");
  EXPECT_EQ(errorOf([&] { cache.truncate(b, 1); }),
            "sequence 1 has 0 positions and cannot keep 1");
  cache.close(b);
  EXPECT_EQ(errorOf([&] { cache.length(b); }), "sequence 1 is not open");
  EXPECT_EQ(errorOf([&] { cache.close(-1); }), "sequence -1 is not open");
  EXPECT_NE(errorOf([] { KvCache(INT64_MAX, 64, 1, 1); }), "");
  EXPECT_NE(errorOf([] { KvCache(1 << 30, int64_t{1} << 40, 1, 1); }), "");
}

//===----------------------------------------------------------------------===//
// Engine
//===----------------------------------------------------------------------===//

namespace {
/// What the fake model saw, a line a token: "id sequence position" and "*"
/// where its output was wanted; "|" after each call.
std::string trace;
int64_t flaggedPosition;

/// The float of a position in layer 0 of the pool.
float &slot(const Context *context, int64_t sequence, int64_t position) {
  const int32_t page =
      context->blockTables[sequence * context->blockTableStride +
                           position / kPageTokens];
  return reinterpret_cast<float *>(context->kvPool +
                                   int64_t{page} * 8192)[position % 64];
}

/// Stores each id in the cache, and puts out the sum of the ids of the
/// sequence so far: what a model with one attention would need.
void fakeForward(const Context *context, int32_t thread, int32_t) {
  context->barrier(context->barrierState, thread);
  if (thread == 0) {
    for (int64_t t = 0; t < context->tokens; ++t) {
      const int32_t position = context->positions[t];
      slot(context, context->sequences[t], position) =
          static_cast<float>(context->tokenIds[t]);
      if (position == flaggedPosition)
        context->flags[t] = 1;
      const bool wanted =
          std::count(context->outputRows, context->outputRows + context->rows,
                     t) != 0;
      trace += std::to_string(context->tokenIds[t]) + " " +
               std::to_string(context->sequences[t]) + " " +
               std::to_string(position) + (wanted ? "*" : "") + "\n";
    }
    trace += "|";
    const int64_t stride = context->wantHidden ? 32 : 48;
    for (int64_t row = 0; row < context->rows; ++row) {
      const int32_t t = context->outputRows[row];
      float sum = 0;
      for (int32_t p = 0; p <= context->positions[t]; ++p)
        sum += slot(context, context->sequences[t], p);
      context->output[row * stride] = sum;
    }
  }
  context->barrier(context->barrierState, thread);
}

class EngineTest : public testing::Test {
protected:
  void SetUp() override {
    trace.clear();
    flaggedPosition = -1;
  }

  std::vector<std::pair<size_t, float>>
  run(Engine &engine, const std::vector<Token> &batch,
      OutputKind kind = OutputKind::Logits) {
    std::vector<std::pair<size_t, float>> result;
    engine.forward(
        batch,
        [&](size_t index, std::span<float> row) {
          EXPECT_EQ(row.size(), kind == OutputKind::Hidden ? 32u : 40u);
          result.emplace_back(index, row[0]);
        },
        kind);
    return result;
  }

  Manifest manifest = parseManifest(handmadeManifest(), "f", 64);
  using Rows = std::vector<std::pair<size_t, float>>;
};
} // namespace

TEST_F(EngineTest, SplitsAtTokensAndRows) {
  Engine engine(manifest, nullptr, fakeForward, {.threads = 2});
  const SequenceId s = engine.cache().open();
  std::vector<Token> batch;
  for (int i = 0; i < 10; ++i)
    batch.push_back({i, s, i, i >= 6});
  // 8 tokens or 2 rows a call.
  EXPECT_EQ(run(engine, batch), (Rows{{6, 21}, {7, 28}, {8, 36}, {9, 45}}));
  EXPECT_EQ(trace, "0 0 0\n1 0 1\n2 0 2\n3 0 3\n4 0 4\n5 0 5\n6 0 6*\n"
                   "7 0 7*\n|8 0 8*\n9 0 9*\n|");
  trace.clear();
  for (Token &token : batch) {
    token.position += 10;
    token.output = true;
  }
  EXPECT_EQ(run(engine, batch).size(), 10u);
  EXPECT_EQ(std::count(trace.begin(), trace.end(), '|'), 5);
}

TEST_F(EngineTest, EverySplitAndMixtureGivesTheSame) {
  for (int64_t callTokens : {1, 3, 8})
    for (int32_t threads : {1, 3}) {
      Engine engine(
          manifest, nullptr, fakeForward,
          {.threads = threads, .sequences = 2, .callTokens = callTokens});
      const SequenceId a = engine.cache().open();
      const SequenceId b = engine.cache().open();
      std::vector<Token> batch;
      for (int i = 0; i < 70; ++i) {
        batch.push_back({i % 40, a, i, i == 69});
        if (i % 2)
          batch.push_back({1, b, i / 2, i == 69});
      }
      const float sum = 40 * 39 / 2 + 30 * 29 / 2;
      EXPECT_EQ(run(engine, batch), (Rows{{103, sum}, {104, 35}}));
    }
}

TEST_F(EngineTest, GivesHiddenRows) {
  Engine engine(manifest, nullptr, fakeForward, {.threads = 1});
  const SequenceId s = engine.cache().open();
  EXPECT_EQ(run(engine, {{4, s, 0, true}, {5, s, 1, true}}, OutputKind::Hidden),
            (Rows{{0, 4}, {1, 9}}));
}

TEST_F(EngineTest, RefusesTokensThatCannotRun) {
  Engine engine(manifest, nullptr, fakeForward, {.threads = 1});
  const SequenceId s = engine.cache().open();
  const auto error = [&](const std::vector<Token> &batch) {
    return errorOf([&] { run(engine, batch); });
  };
  EXPECT_EQ(error({{40, s, 0, true}}),
            "token id 40 of sequence 0 is not in the model's vocabulary of "
            "40");
  EXPECT_EQ(error({{-1, s, 0, true}}),
            "token id -1 of sequence 0 is not in the model's vocabulary of "
            "40");
  EXPECT_EQ(error({{1, s, 1, true}}),
            "position 1 of sequence 0 does not follow: 0 is next");
  EXPECT_EQ(error({{1, s, 0, true}, {1, s, 0, true}}),
            "position 0 of sequence 0 does not follow: 1 is next");
  EXPECT_EQ(error({{1, 1, 0, true}}), "sequence 1 is not open");
  std::vector<Token> batch;
  for (int i = 0; i <= 100; ++i)
    batch.push_back({1, s, i, false});
  EXPECT_EQ(error(batch), "position 100 of sequence 0 is past the context of "
                          "100 that the model was compiled for");
  EXPECT_EQ(trace, "");
  EXPECT_EQ(engine.cache().length(s), 0);
  EXPECT_NE(errorOf([&] {
              Engine(manifest, nullptr, fakeForward, {.callTokens = -1});
            }),
            "");
}

TEST_F(EngineTest, AFlagNamesSequencePositionAndOp) {
  Engine engine(manifest, nullptr, fakeForward,
                {.threads = 2, .callTokens = 2});
  const SequenceId s = engine.cache().open();
  flaggedPosition = 3;
  const auto error = [&] {
    return errorOf([&] {
      run(engine, {{1, s, 0, false},
                   {1, s, 1, false},
                   {1, s, 2, false},
                   {1, s, 3, true}});
    });
  };
  const std::string message =
      "a number is not finite at sequence 0, position 3, in second; the file "
      "may be damaged, which qwen-run info --verify finds";
  EXPECT_EQ(error(), message);
  // The first call stays; the second one is undone.
  EXPECT_EQ(engine.cache().length(s), 2);
  engine.cache().truncate(s, 0);
  manifest.kv.format = KvFormat::F16;
  EXPECT_EQ(error(), message);
  engine.cache().truncate(s, 0);
  manifest.work[1].kind = "append";
  EXPECT_EQ(error(), message + ", or keys or values are too large for f16, "
                               "which qwen-opt --kv f32 avoids");
}

TEST_F(EngineTest, AFullCacheLeavesSequencesAsTheyWere) {
  Engine engine(manifest, nullptr, fakeForward,
                {.threads = 1, .sequences = 2, .kvPages = 1});
  const SequenceId a = engine.cache().open();
  const SequenceId b = engine.cache().open();
  EXPECT_EQ(errorOf([&] { run(engine, {{1, a, 0, true}, {1, b, 0, true}}); }),
            "the KV cache is full: sequence 1 needs 1 more pages and 0 of 1 "
            "are free");
  EXPECT_EQ(engine.cache().length(a), 0);
  EXPECT_EQ(run(engine, {{7, a, 0, true}}), (Rows{{0, 7}}));
}

TEST(EngineArtifact, RunsTheCodeOfAnArtifact) {
  const std::string path = HandmadeArtifact().write("engine.qwen");
  const Artifact artifact(path);
  Engine engine(artifact, {.threads = 2});
  const SequenceId s = engine.cache().open();
  int rows = 0;
  const std::vector<Token> batch = {{1, s, 0, true}};
  engine.forward(batch, [&](size_t, std::span<float>) { ++rows; });
  EXPECT_EQ(rows, 1);
  unlink(path.c_str());
}

TEST(EngineArtifact, NamesAMissingFunction) {
  std::string manifest = handmadeManifest();
  manifest.replace(manifest.find("\"test\""), 6, "\"best\"");
  const std::string path = HandmadeArtifact(manifest).write("best.qwen");
  const Artifact artifact(path);
  EXPECT_EQ(errorOf([&] { Engine engine(artifact, {.threads = 1}); }),
            path + " is damaged: it has no function forward.best");
  unlink(path.c_str());
}
