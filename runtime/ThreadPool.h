//===- ThreadPool.h - Threads that run one forward --------------*- C++ -*-===//
//
// SPMD: all threads of the pool run `forward` with the same context, and meet
// at barriers that the generated code calls.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_THREADPOOL_H
#define QWEN_RUNTIME_THREADPOOL_H

#include "qwen/ABI/KernelABI.h"

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
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

  /// Equal parts in 16.16: what Context::shares wants, [size() + 1].
  std::span<const uint32_t> shares() const { return shareTable; }

  /// Runs forward(context, t, size()) on every thread t and returns when all
  /// have. `context` must have this pool's barrier, barrierState and shares
  /// (see bind). Not to be called from two threads at once.
  void run(ForwardFn *forward, const Context &context);

  /// Fills barrier, barrierState and shares of `context`.
  void bind(Context &context);

private:
  static void barrier(void *state, int32_t thread);
  void waitForOthers();
  void work(int32_t thread);
  void stop();
  /// Waits until `value` is not `old`: first in a loop, then asleep.
  void waitChange(const std::atomic<uint32_t> &value, uint32_t old) const;

  const int32_t count;
  /// Turns of the loop before a thread sleeps.
  int32_t spins;
  std::vector<uint32_t> shareTable;
  std::vector<std::thread> threads;

  ForwardFn *forward = nullptr;
  const Context *context = nullptr;
  bool stopping = false;

  /// Counts runs. Threads wait for it to change.
  alignas(64) std::atomic<uint32_t> runs{0};
  /// Threads that have come to the barrier, and barriers passed.
  alignas(64) std::atomic<int32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> phase{0};
};

} // namespace qwen

#endif // QWEN_RUNTIME_THREADPOOL_H
