//===- ThreadPool.h - Threads that run calls --------------------*- C++ -*-===//
//
// SPMD: all threads of the pool run `forward` with the same context and wait
// for each other at barriers that the generated code calls. Between runs, the
// threads share work that needs no barrier (forEach).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_THREADPOOL_H
#define QWEN_RUNTIME_ENGINE_THREADPOOL_H

#include "engine/CoreGroups.h"
#include "engine/Turns.h"
#include "engine/WorkShares.h"

#include "qwen/ABI/KernelABI.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace qwen {

/// Sets the floating-point environment of docs/numerics.md for a scope: round
/// to nearest, keep subnormals, no traps (MXCSR = 0x1F80, FPCR = 0).
class FloatEnvironment {
public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment &) = delete;
  FloatEnvironment &operator=(const FloatEnvironment &) = delete;

private:
  uint64_t saved;
};

/// A fixed number of threads, which several models may share. The caller of
/// `run` is the first; the others sleep between runs.
class ThreadPool {
public:
  /// Throws Error if the system cannot start the threads or `threads` is not in
  /// [1, kMaxThreads].
  explicit ThreadPool(int32_t threads);
  /// A thread for each core of a group, which it does not leave. A thread that
  /// calls `run` is bound to the first core from then on.
  explicit ThreadPool(const CoreGroup &group);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  static constexpr int32_t kMaxThreads = 1024;

  int32_t size() const { return count; }
  /// The NUMA node of its cores; nothing if its threads may run on any core.
  std::optional<int> node() const {
    return cores.cpus.empty() ? std::nullopt : std::optional(cores.node);
  }
  /// "CPUs 0-7 of node 0", or "8 threads" that may run on any core.
  std::string describe() const;
  /// Number of calls that run or wait for their turn.
  uint64_t callers() const { return turns.callers(); }

  /// Static shares for Context::shares, [size() + 1]. They start equal and
  /// follow the measured speed of the threads.
  std::span<const uint32_t> shares() const { return work.table(); }

  /// Binds the calling thread as `run` does, before its time counts.
  void bindCaller() const;

  /// Runs forward(context, t, size()) on every thread t and returns when all
  /// have ended. `context` must have this pool's barrier, barrierState and
  /// shares (see bind). Several threads may call it; their runs take turns, in
  /// the order of the calls. Throws Error in a child of fork, which does not
  /// have the threads.
  void run(ForwardFn *forward, const Context &context);

  /// Calls visit(0) ... visit(items - 1), each once, on any thread and in any
  /// order, and returns when all have ended. `visit` must not throw or call the
  /// pool. Several threads may call it, as `run`, and it throws as `run` does.
  void forEach(size_t items, const std::function<void(size_t)> &visit);

  /// Fills barrier, barrierState and shares of `context`.
  void bind(Context &context);

private:
  /// A value whose change threads await: they spin first, then sleep.
  struct alignas(64) Event {
    std::atomic<uint32_t> value{0};
    /// Number of threads that sleep until an even or an odd value changes. The
    /// changing thread sets it to 0 and wakes them. A thread that arrives too
    /// late to sleep still counts itself; this costs one wake of nobody.
    std::atomic<int32_t> sleepers[2] = {0, 0};
  };
  /// The CPU on which a thread was last seen, the number of barriers that it
  /// has reached, and its phase in this run.
  struct alignas(64) Place {
    std::atomic<int32_t> cpu{-1};
    std::atomic<uint32_t> barriers{0};
    size_t phase = 0;
  };

  ThreadPool(int32_t threads, CoreGroup group);
  /// Binds the calling thread to core `thread` of the group, if there is one.
  void bindToCore(int32_t thread) const;

  /// What each thread does in a run.
  using Task = std::function<void(int32_t thread)>;

  /// Runs newTask(t) on every thread t and returns when all have ended.
  void runOnAll(const Task &newTask);
  static void barrier(void *state, int32_t thread);
  void waitForOthers(int32_t thread);
  void serve(int32_t thread);
  void stop();
  static void change(Event &event);
  void waitChange(Event &event, uint32_t old, int32_t thread) const;
  /// Whether another thread that has not reached the barrier was last seen on
  /// this thread's CPU and may wait for it.
  bool inTheWay(int32_t thread) const;

  const int32_t count;
  /// Empty if the threads may run on any core.
  const CoreGroup cores;
  /// The number of the pool in this process, from 1.
  const uint64_t serial;
  /// CPUs that the threads may use.
  const int32_t cpus;
  WorkShares work;
  std::vector<Place> places;
  /// The process that owns the threads.
  const pid_t owner = getpid();
  std::unique_ptr<std::vector<std::thread>> threads =
      std::make_unique<std::vector<std::thread>>();

  Turns turns;
  const Task *task = nullptr;
  bool stopping = false;

  /// Counts runs.
  Event runs;
  /// Number of threads that have reached the barrier.
  alignas(64) std::atomic<int32_t> arrived{0};
  /// When the last thread reached the previous barrier and this phase began, in
  /// nanoseconds of the steady clock.
  int64_t phaseStart = 0;
  /// Counts barriers passed.
  Event passed;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_THREADPOOL_H
