//===- WorkShares.h - How much each thread does -----------------*- C++ -*-===//
//
// Cores differ in speed (big.LITTLE), and other programs run on some of them.
// Shares of work follow what threads took for what they had. No result depends
// on them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_WORKSHARES_H
#define QWEN_RUNTIME_ENGINE_WORKSHARES_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// What Context::shares points to, and the measurements behind it. A run has
/// phases, the same for all threads, that end at barriers.
class WorkShares {
public:
  /// Equal shares.
  explicit WorkShares(int32_t threads);

  /// [threads + 1] in 16.16: 0, ..., 65536, ascending.
  std::span<const uint32_t> table() const { return bounds; }

  /// Thread `thread` ended phase `phase` (from 0) of this run `nanoseconds`
  /// after it began for all. Threads may call this at once, each for itself.
  void record(int32_t thread, size_t phase, int64_t nanoseconds) {
    if (phase < kPhases)
      times[static_cast<size_t>(thread) * kPhases + phase] = nanoseconds;
  }

  /// Moves the shares towards those with which all threads would have ended the
  /// first `phases` phases at once. Between runs. Phases that were not divided
  /// among all threads say nothing and do not count. Small changes are not
  /// made: units of work are whole, and equal shares divide them best.
  void adapt(size_t phases);

private:
  /// Phases of a run that are measured; a layer has 10.
  static constexpr size_t kPhases = 1024;

  /// Share of each thread; the sum is 1. What `bounds` was made of is in
  /// `current`, and `wanted` follows each run.
  std::vector<double> current, wanted;
  std::vector<uint32_t> bounds;
  /// [threads][kPhases]
  std::vector<int64_t> times;
  /// Nanoseconds of each thread in the phases that count.
  std::vector<double> sums;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_WORKSHARES_H
