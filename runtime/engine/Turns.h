//===- Turns.h - A lock that is fair ----------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_TURNS_H
#define QWEN_RUNTIME_ENGINE_TURNS_H

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace qwen {

/// A lock that threads get in the order in which they asked for it. A
/// std::mutex may go to the same thread again and again: one engine's long
/// prompt would hold another's decoding.
class Turns {
public:
  void lock() {
    std::unique_lock guard(mutex);
    const uint64_t ticket = tickets++;
    changed.wait(guard, [&] { return ticket == served; });
  }
  void unlock() {
    {
      const std::lock_guard guard(mutex);
      ++served;
    }
    changed.notify_all();
  }

  /// Number of threads that have the lock or wait for it.
  uint64_t callers() const {
    const std::lock_guard guard(mutex);
    return tickets - served;
  }

private:
  mutable std::mutex mutex;
  std::condition_variable changed;
  uint64_t tickets = 0, served = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TURNS_H
