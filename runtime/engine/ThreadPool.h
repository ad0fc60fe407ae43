//===- ThreadPool.h - Threads that run one forward --------------*- C++ -*-===//
//
// SPMD: all threads of the pool run `forward` with the same context, and meet
// at barriers that the generated code calls.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_THREADPOOL_H
#define QWEN_RUNTIME_ENGINE_THREADPOOL_H

#include "engine/WorkShares.h"

#include "qwen/ABI/KernelABI.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <unistd.h>
#include <vector>

namespace qwen {

/// Sets the floating-point environment of docs/numerics.md (round to nearest,
/// subnormals kept, no traps) for a scope: MXCSR = 0x1F80, FPCR = 0.
class FloatEnvironment {
public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment &) = delete;
  FloatEnvironment &operator=(const FloatEnvironment &) = delete;

private:
  uint64_t saved;
};

/// A fixed number of threads, of which the caller of run is the first. The
/// others sleep between runs.
class ThreadPool {
public:
  /// Throws Error where the system gives no threads or `threads` is not in
  /// [1, kMaxThreads].
  explicit ThreadPool(int32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  static constexpr int32_t kMaxThreads = 1024;

  int32_t size() const { return count; }

  /// What Context::shares wants, [size() + 1]: equal parts at first, then by
  /// the speed that threads show.
  std::span<const uint32_t> shares() const { return work.table(); }

  /// Runs forward(context, t, size()) on every thread t and returns when all
  /// have. `context` must have this pool's barrier, barrierState and shares
  /// (see bind). Not to be called from two threads at once. Throws Error in a
  /// child of fork, where the threads are not.
  void run(ForwardFn *forward, const Context &context);

  /// Fills barrier, barrierState and shares of `context`.
  void bind(Context &context);

private:
  /// A value that threads wait to see changed: in a loop first, then asleep.
  struct alignas(64) Event {
    std::atomic<uint32_t> value{0};
    /// Threads that sleep until an even or an odd value changes. Who changes
    /// it sets them to 0: those that are woken up run again, though maybe not
    /// yet. One that comes too late to sleep is still counted, which wakes
    /// nobody once more.
    std::atomic<int32_t> sleepers[2] = {0, 0};
  };
  /// Where a thread was last seen, the barriers that it has come to, and those
  /// of this run.
  struct alignas(64) Place {
    std::atomic<int32_t> cpu{-1};
    std::atomic<uint32_t> barriers{0};
    size_t phase = 0;
  };

  static void barrier(void *state, int32_t thread);
  void waitForOthers(int32_t thread);
  void serve(int32_t thread);
  void stop();
  static void change(Event &event);
  void waitChange(Event &event, uint32_t old, int32_t thread) const;
  /// Whether a thread that has not come to this one's barrier was last seen on
  /// this one's CPU, so that it may be waiting for it.
  bool inTheWay(int32_t thread) const;

  const int32_t count;
  /// That the threads may use.
  const int32_t cpus;
  WorkShares work;
  std::vector<Place> places;
  /// The process that has the threads.
  const pid_t owner = getpid();
  std::unique_ptr<std::vector<std::thread>> threads =
      std::make_unique<std::vector<std::thread>>();

  ForwardFn *forward = nullptr;
  const Context *context = nullptr;
  bool stopping = false;

  /// Counts runs.
  Event runs;
  /// Threads that have come to the barrier.
  alignas(64) std::atomic<int32_t> arrived{0};
  /// When the last of them came, in nanoseconds of the steady clock: this phase
  /// began then.
  int64_t phaseStart = 0;
  /// Counts barriers passed.
  Event passed;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_THREADPOOL_H
