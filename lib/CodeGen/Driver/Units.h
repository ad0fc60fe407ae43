//===- Units.h - How threads divide the units of an op ----------*- C++ -*-===//
//
// The speed of a thread changes within an op. Memory serves threads in turns,
// and a thread that reads alone gets little more than its part of the
// bandwidth. Another program or virtual machine may use a core. So no share has
// the last units of an op, its tail: a thread that has finished its share
// steals some of them, fewer each time. No result depends on the thefts.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_DRIVER_UNITS_H
#define QWEN_LIB_CODEGEN_DRIVER_UNITS_H

#include "qwen/ABI/KernelABI.h"

#include <algorithm>
#include <atomic>

/// Attribute of functions that an instance specialises: with the instance's
/// constants in place, their code is a few calls.
#define QWEN_SPECIALISED [[gnu::always_inline]] inline
/// Attribute of a lambda in such a function, behind its parameters: LLVM
/// inlines the lambda in all instances, however many there are.
#define QWEN_SPECIALISED_LAMBDA __attribute__((always_inline))
/// The head of a function of DriverABI.def. Its body begins with a copy of the
/// arguments, so that they are read once although kernels write to memory.
#define QWEN_ENTRY(Function, Reads)                                            \
  [[gnu::always_inline]] void qwen::qwenDriver##Function(                      \
      const Context *context, int32_t thread,                                  \
      const Reads##Arguments &arguments,                                       \
      [[maybe_unused]] const Function##Instance &fixed)

namespace qwen::driver {

/// Bytes that the functions below move at once. The driver's code has no libc,
/// and LLVM does not vectorize its loops.
inline constexpr int64_t kMovedBytes = 64;

/// Copies `n` values.
template <typename T>
QWEN_SPECIALISED void copyValues(const T *from, int64_t n, T *to) {
  if (from == to)
    return;
  constexpr int64_t step = kMovedBytes / sizeof(T);
  int64_t i = 0;
  for (; i + step <= n; i += step)
    __builtin_memcpy_inline(to + i, from + i, kMovedBytes);
  for (; i < n; ++i)
    to[i] = from[i];
}

/// Sets `n` values to 0.
QWEN_SPECIALISED void clearValues(float *values, int64_t n) {
  constexpr int64_t step = kMovedBytes / sizeof(float);
  int64_t i = 0;
  for (; i + step <= n; i += step)
    __builtin_memset_inline(values + i, 0, kMovedBytes);
  for (; i < n; ++i)
    values[i] = 0;
}

/// Units [begin, end).
struct Range {
  int64_t begin, end;
};

/// The thread's share of `units` units.
inline Range shareOf(const Context *context, int32_t thread, int64_t units) {
  const auto count = static_cast<uint64_t>(units);
  const uint32_t *shares = context->shares + thread;
  return {static_cast<int64_t>((count * shares[0]) >> 16),
          static_cast<int64_t>((count * shares[1]) >> 16)};
}

/// The number of units that threads have as shares. The others are the tail: an
/// eighth, but none for one thread, or if the first thread's share of that
/// eighth has no more than `together` units.
inline int64_t sharedUnits(const Context *context, int64_t units,
                           int64_t together) {
  const int64_t eighth = units >> 3;
  const int64_t ofFirst = shareOf(context, 0, eighth).end;
  return ofFirst > together && ofFirst < eighth ? units - eighth : units;
}

/// Steals units of the tail, which begins at `shared`: half of the thread's
/// share of the units left, and at least `least`. The range is empty if no unit
/// is left.
[[gnu::noinline]] inline Range steal(const Context *context, int32_t thread,
                                     int64_t op, int64_t shared, int64_t units,
                                     int64_t least) {
  const std::atomic_ref<uint32_t> taken(context->taken[op]);
  uint32_t before = taken.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t begin = shared + before;
    const int64_t left = units - begin;
    const Range share = shareOf(context, thread, left);
    const int64_t half = (share.end - share.begin) >> 1;
    const int64_t count = std::min(std::max(half, least), left);
    // A thread that finds nothing writes nothing, so that the counter stays in
    // every thread's cache.
    if (count == 0 || taken.compare_exchange_strong(
                          before, before + static_cast<uint32_t>(count),
                          std::memory_order_relaxed))
      return {begin, begin + count};
  }
}

/// Calls compute(begin, end) for the thread's share of `units` units, then for
/// the units that it steals.
template <typename Compute>
QWEN_SPECIALISED void forStolenUnits(const Context *context, int32_t thread,
                                     int64_t op, int64_t units,
                                     int64_t together, int64_t least,
                                     const Compute &compute) {
  const int64_t shared = sharedUnits(context, units, together);
  Range range = shareOf(context, thread, shared);
  do {
    compute(range.begin, range.end);
    range = steal(context, thread, op, shared, units, least);
  } while (range.begin < range.end);
}

/// Calls compute(unit) for the thread's share of `units` units.
template <typename Compute>
QWEN_SPECIALISED void forUnits(const Context *context, int32_t thread,
                               int64_t units, const Compute &compute) {
  const Range range = shareOf(context, thread, units);
  for (int64_t unit = range.begin; unit < range.end; ++unit)
    compute(unit);
}

/// If `bad` is not 0, notes that op `op` saw a value that is not finite, of
/// token `i` of a count. The first such op stays, because it is the one to
/// blame.
inline void flag(const CountOfCall &count, int64_t i, int64_t op, int32_t bad) {
  if (!bad)
    return;
  const std::atomic_ref<uint32_t> seen(
      count.flags[count.tokens ? count.tokens[i] : i]);
  const auto number = static_cast<uint32_t>(op);
  uint32_t first = seen.load(std::memory_order_relaxed);
  while (number < first &&
         !seen.compare_exchange_weak(first, number, std::memory_order_relaxed))
    ;
}

/// The same of a token of the call.
inline void flag(const Context *context, int64_t token, int64_t op,
                 int32_t bad) {
  flag(context->counts[kTokensOfCall], token, op, bad);
}

} // namespace qwen::driver

#endif // QWEN_LIB_CODEGEN_DRIVER_UNITS_H
