//===- ThreadPool.cpp - Threads that run one forward ----------------------===//

#include "ThreadPool.h"

#include "CpuCount.h"

#include "qwen/ABI/Error.h"

#include <pthread.h>
#include <signal.h>
#include <system_error>
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
// Unlike yield, isb waits for some cycles on the cores that there are.
static void relax() { __asm__ volatile("isb" : : : "memory"); }
#endif

ThreadPool::ThreadPool(int32_t threadCount) : count(threadCount) {
  if (count < 1 || count > kMaxThreads)
    throw Error("the number of threads is " + std::to_string(count) +
                " when 1 to " + std::to_string(kMaxThreads) + " is possible");
  // About 50 microseconds; more threads than processors must not spin, for
  // they would wait for one that does not run.
  spins = count <= static_cast<int32_t>(affinityCpus().size()) ? 2000 : 0;
  for (int64_t t = 0; t <= count; ++t)
    shareTable.push_back(static_cast<uint32_t>(t * 65536 / count));

  // Signals are for the thread that runs the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    threads.reserve(static_cast<size_t>(count) - 1);
    for (int32_t t = 1; t < count; ++t)
      threads.emplace_back([this, t] { work(t); });
  } catch (const std::system_error &error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    const size_t started = threads.size() + 1;
    stop();
    throw Error("cannot start " + std::to_string(count) + " threads: only " +
                std::to_string(started) + " started; use fewer with -t");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping = true;
  runs.fetch_add(1, std::memory_order_release);
  runs.notify_all();
  for (std::thread &thread : threads)
    thread.join();
  threads.clear();
}

void ThreadPool::bind(Context &to) {
  to.barrier = &ThreadPool::barrier;
  to.barrierState = this;
  to.shares = shareTable.data();
}

void ThreadPool::run(ForwardFn *newForward, const Context &newContext) {
  forward = newForward;
  context = &newContext;
  runs.fetch_add(1, std::memory_order_release);
  runs.notify_all();
  const FloatEnvironment environment;
  forward(context, 0, count);
  waitForOthers();
}

void ThreadPool::work(int32_t thread) {
  for (uint32_t seen = 0;; ++seen) {
    waitChange(runs, seen);
    if (stopping)
      return;
    const FloatEnvironment environment;
    forward(context, thread, count);
    // No thread starts the next run before all have ended this one, so that
    // `runs` is never more than one ahead.
    waitForOthers();
  }
}

void ThreadPool::barrier(void *state, int32_t) {
  static_cast<ThreadPool *>(state)->waitForOthers();
}

void ThreadPool::waitForOthers() {
  const uint32_t now = phase.load(std::memory_order_relaxed);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    arrived.store(0, std::memory_order_relaxed);
    phase.fetch_add(1, std::memory_order_release);
    phase.notify_all();
    return;
  }
  waitChange(phase, now);
}

void ThreadPool::waitChange(const std::atomic<uint32_t> &value,
                            uint32_t old) const {
  for (int32_t i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old)
      return;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}
