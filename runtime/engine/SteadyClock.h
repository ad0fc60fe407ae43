//===- SteadyClock.h - A clock for measurements -----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_STEADYCLOCK_H
#define QWEN_RUNTIME_ENGINE_STEADYCLOCK_H

#include <chrono>
#include <cstdint>

namespace qwen {

/// Nanoseconds of a clock that never goes back.
inline int64_t steadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_STEADYCLOCK_H
