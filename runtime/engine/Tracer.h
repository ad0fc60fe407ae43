//===- Tracer.h - Times at which threads begin ops and wait -----*- C++ -*-===//
//
// The events of a profile: the times at which each thread of a call begins an
// op and reaches a barrier. Generated code reports ops by Context::trace. The
// tracer replaces Context::barrier to record barriers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_TRACER_H
#define QWEN_RUNTIME_ENGINE_TRACER_H

#include "qwen/ABI/KernelABI.h"

#include <cstdint>
#include <vector>

namespace qwen {

class Tracer {
public:
  /// Value of Event::op when the thread reaches a barrier. Its next event is
  /// after the barrier.
  static constexpr int32_t kBarrier = -1;

  struct Event {
    /// Time of the steady clock.
    int64_t nanoseconds;
    /// Index of the op that begins, the number of ops at the end of a call, or
    /// kBarrier.
    int32_t op;
  };

  explicit Tracer(int32_t threads) : lists(static_cast<size_t>(threads)) {}

  /// Records all later calls with this context. Its barrier must be set.
  void bind(Context &context);

  int32_t threads() const { return static_cast<int32_t>(lists.size()); }
  /// Events of one thread in all calls since `clear`, in order.
  const std::vector<Event> &events(int32_t thread) const {
    return lists[static_cast<size_t>(thread)].events;
  }
  /// Context::taken of each call since `clear`, after the call.
  const std::vector<std::vector<uint32_t>> &taken() const { return calls; }
  /// Adds a call. Its threads have finished.
  void addCall(const std::vector<uint32_t> &taken) { calls.push_back(taken); }
  void clear();

private:
  struct alignas(64) List {
    std::vector<Event> events;
  };

  static void trace(void *state, int32_t thread, int32_t op);
  static void barrier(void *state, int32_t thread);

  std::vector<List> lists;
  std::vector<std::vector<uint32_t>> calls;
  void (*wait)(void *state, int32_t thread) = nullptr;
  void *waitState = nullptr;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TRACER_H
