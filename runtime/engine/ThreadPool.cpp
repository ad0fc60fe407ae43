//===- ThreadPool.cpp - Threads that run calls ----------------------------===//

#include "engine/ThreadPool.h"

#include "engine/CpuCount.h"
#include "engine/SteadyClock.h"

#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Numa.h"
#include "qwen/Support/Process.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <linux/futex.h>
#include <mutex>
#include <sched.h>
#include <sys/syscall.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace qwen;

#if defined(__x86_64__)
FloatEnvironment::FloatEnvironment() : saved(_mm_getcsr()) {
  _mm_setcsr(0x1F80);
}
FloatEnvironment::~FloatEnvironment() {
  _mm_setcsr(static_cast<uint32_t>(saved));
}
static void relax() { _mm_pause(); }
#elif defined(__aarch64__)
FloatEnvironment::FloatEnvironment() {
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
  __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
}
FloatEnvironment::~FloatEnvironment() {
  __asm__ volatile("msr fpcr, %0" : : "r"(saved));
}
// On existing cores isb waits for several cycles; yield does not.
static void relax() { __asm__ volatile("isb" : : : "memory"); }
#endif

/// Time that a thread spins before it sleeps. Most waits at a barrier and the
/// drawing of a token are shorter, and the power is small.
static constexpr int64_t kSpinNanoseconds = 100'000;

static uint32_t *word(std::atomic<uint32_t> &value) {
  static_assert(sizeof(value) == sizeof(uint32_t) &&
                std::atomic<uint32_t>::is_always_lock_free);
  return reinterpret_cast<uint32_t *>(&value);
}

static int32_t checked(int32_t count) {
  if (count < 1 || count > ThreadPool::kMaxThreads)
    throw Error("the number of threads is " + std::to_string(count) +
                " when 1 to " + std::to_string(ThreadPool::kMaxThreads) +
                " is possible");
  return count;
}

static std::atomic<uint64_t> lastPool = 0;

ThreadPool::ThreadPool(int32_t threads) : ThreadPool(threads, CoreGroup()) {}

ThreadPool::ThreadPool(const CoreGroup &group)
    : ThreadPool(static_cast<int32_t>(group.cpus.size()), group) {}

ThreadPool::ThreadPool(int32_t threadCount, CoreGroup group)
    : count(checked(threadCount)), cores(std::move(group)), serial(++lastPool),
      // Spinning uses up a quota just as work does.
      cpus(static_cast<int32_t>(
          std::min(static_cast<double>(affinityCpus().size()),
                   std::ceil(controlGroupCpus())))),
      work(count), places(static_cast<size_t>(count)) {
  try {
    threads->reserve(static_cast<size_t>(count) - 1);
    for (int32_t t = 1; t < count; ++t)
      threads->push_back(startThread("runs calls", [this, t] { serve(t); }));
  } catch (const Error &) {
    const size_t started = threads->size() + 1;
    stop();
    throw Error("cannot start " + std::to_string(count) + " threads: only " +
                    std::to_string(started) + " started; use fewer with -t",
                ErrorKind::NoMemory);
  }
}

std::string ThreadPool::describe() const {
  if (cores.cpus.empty())
    return std::to_string(count) + " threads";
  return "CPUs " + cpuListText(cores.cpus) + " of node " +
         std::to_string(cores.node);
}

ThreadPool::~ThreadPool() {
  // A child of fork has no threads to join. Their handles must leak, for their
  // destructors would end the process.
  if (getpid() == owner)
    stop();
  else
    std::ignore = threads.release();
}

void ThreadPool::stop() {
  stopping = true;
  change(runs);
  for (std::thread &thread : *threads)
    thread.join();
  threads->clear();
}

void ThreadPool::bind(Context &to) {
  to.barrier = &ThreadPool::barrier;
  to.barrierState = this;
  to.shares = work.table().data();
}

void ThreadPool::bindToCore(int32_t thread) const {
  // A core that has been taken away since then costs speed and no bits.
  if (!cores.cpus.empty())
    bindThread({&cores.cpus[static_cast<size_t>(thread)], 1});
}

void ThreadPool::bindCaller() const {
  // The pool that has bound this thread.
  thread_local uint64_t boundBy = 0;
  if (std::exchange(boundBy, serial) != serial)
    bindToCore(0);
}

void ThreadPool::runOnAll(const Task &newTask) {
  bindCaller();
  if (getpid() != owner)
    throw Error("the model was loaded before fork and its threads stayed in "
                "the parent process; load it again in this one");
  task = &newTask;
  phaseStart = steadyNanoseconds();
  change(runs);
  const FloatEnvironment environment;
  newTask(0);
  waitForOthers(0);
}

void ThreadPool::run(ForwardFn *forward, const Context &context) {
  const std::lock_guard lock(turns);
  const auto runForward = [&](int32_t thread) {
    forward(&context, thread, count);
  };
  // A Task allocates no memory for a reference.
  runOnAll(std::ref(runForward));
  // No other thread reads the shares now.
  work.adapt(places[0].phase);
  places[0].phase = 0;
}

void ThreadPool::forEach(size_t items,
                         const std::function<void(size_t)> &visit) {
  const std::lock_guard lock(turns);
  std::atomic<size_t> next = 0;
  const auto visitNext = [&](int32_t) {
    for (size_t item; (item = next.fetch_add(1)) < items;)
      visit(item);
  };
  if (items > 1 && count > 1) {
    runOnAll(std::ref(visitNext));
    places[0].phase = 0;
  } else {
    const FloatEnvironment environment;
    visitNext(0);
  }
}

void ThreadPool::serve(int32_t thread) {
  bindToCore(thread);
  for (uint32_t seen = 0;; ++seen) {
    waitChange(runs, seen, thread);
    if (stopping)
      return;
    places[static_cast<size_t>(thread)].phase = 0;
    const FloatEnvironment environment;
    (*task)(thread);
    // All threads end this run before one starts the next, so `runs` is never
    // more than one ahead.
    waitForOthers(thread);
  }
}

void ThreadPool::barrier(void *state, int32_t thread) {
  static_cast<ThreadPool *>(state)->waitForOthers(thread);
}

void ThreadPool::waitForOthers(int32_t thread) {
  if (count == 1)
    return;
  const int64_t time = steadyNanoseconds();
  Place &place = places[static_cast<size_t>(thread)];
  work.record(thread, place.phase++, time - phaseStart);
  const uint32_t before = passed.value.load(std::memory_order_relaxed);
  place.barriers.store(before + 1, std::memory_order_relaxed);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    arrived.store(0, std::memory_order_relaxed);
    phaseStart = time;
    change(passed);
  } else {
    waitChange(passed, before, thread);
  }
  place.cpu.store(sched_getcpu(), std::memory_order_relaxed);
}

void ThreadPool::change(Event &event) {
  // One total order with the sleeper's addition and the system's read of the
  // value: either this thread sees the sleeper, or the sleeper sees the change.
  const uint32_t old = event.value.fetch_add(1, std::memory_order_seq_cst);
  if (event.sleepers[old % 2].exchange(0, std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, word(event.value), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
            nullptr, 0);
}

bool ThreadPool::inTheWay(int32_t thread) const {
  const int32_t cpu = sched_getcpu();
  const uint32_t next = passed.value.load(std::memory_order_relaxed) + 1;
  for (int32_t t = 0; t < count; ++t) {
    const Place &other = places[static_cast<size_t>(t)];
    if (t != thread && other.cpu.load(std::memory_order_relaxed) == cpu &&
        other.barriers.load(std::memory_order_relaxed) != next)
      return true;
  }
  return false;
}

void ThreadPool::waitChange(Event &event, uint32_t old, int32_t thread) const {
  const auto changed = [&] {
    return event.value.load(std::memory_order_acquire) != old;
  };
  std::atomic<int32_t> &sleepers = event.sleepers[old % 2];
  // A spinning thread must not keep a CPU from a thread that still works.
  if (count - sleepers.load(std::memory_order_relaxed) <= cpus &&
      !inTheWay(thread)) {
    const int64_t end = steadyNanoseconds() + kSpinNanoseconds;
    do {
      for (int i = 0; i < 16; ++i) {
        if (changed())
          return;
        relax();
      }
    } while (steadyNanoseconds() < end);
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  // std::atomic::wait would first yield to other programs, for milliseconds.
  // The loop is needed because signals end the system call too.
  while (!changed())
    syscall(SYS_futex, word(event.value), FUTEX_WAIT_PRIVATE, old, nullptr,
            nullptr, 0);
}
