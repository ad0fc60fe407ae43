//===- Tracer.h - When threads begin ops and wait ---------------*- C++ -*-===//
//
// What a profile is made of: the moments at which each thread of a call began
// an op and came to a barrier. Compiled code tells the first by Context::trace;
// the second is seen between it and the thread pool.
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
  /// Value of Event::op where the thread comes to a barrier. It has left it at
  /// its next event.
  static constexpr int32_t kBarrier = -1;

  struct Event {
    /// Of a steady clock.
    int64_t nanoseconds;
    /// Index of the op that begins, the number of ops where a call ends, or
    /// kBarrier.
    int32_t op;
  };

  explicit Tracer(int32_t threads) : lists(static_cast<size_t>(threads)) {}

  /// Records the calls that have this context from now on. It must have its
  /// barrier.
  void bind(Context &context);

  int32_t threads() const { return static_cast<int32_t>(lists.size()); }
  /// Events of one thread in order, of all calls since `clear`.
  const std::vector<Event> &events(int32_t thread) const {
    return lists[static_cast<size_t>(thread)].events;
  }
  void clear();

private:
  struct alignas(64) List {
    std::vector<Event> events;
  };

  static void trace(void *state, int32_t thread, int32_t op);
  static void barrier(void *state, int32_t thread);

  std::vector<List> lists;
  void (*wait)(void *state, int32_t thread) = nullptr;
  void *waitState = nullptr;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TRACER_H
