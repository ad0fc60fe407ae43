//===- WorkShares.h - Static shares of the threads --------------*- C++ -*-===//
//
// Cores differ in speed (big.LITTLE), and other programs run on some of them.
// So the share of a thread follows its measured speed. No result depends on the
// shares.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_WORKSHARES_H
#define QWEN_RUNTIME_ENGINE_WORKSHARES_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// The table of Context::shares and its measurements. Barriers divide a run
/// into phases, the same for all threads.
class WorkShares {
public:
  /// Equal shares.
  explicit WorkShares(int32_t threads);

  /// [threads + 1] in 16.16: 0, ..., 65536, ascending.
  std::span<const uint32_t> table() const { return bounds; }

  /// Records that thread `thread` took `nanoseconds` for phase `phase` (from 0)
  /// of this run. Each thread may call it for itself at any time of a run.
  void record(int32_t thread, size_t phase, int64_t nanoseconds) {
    if (phase < kPhases)
      times[static_cast<size_t>(thread) * kPhases + phase] = nanoseconds;
  }

  /// Moves the shares towards those with which all threads would have ended the
  /// run's `phases` phases at the same time. Call it between runs. Phases that
  /// were not divided among all threads do not count. Ignores small changes,
  /// because equal shares divide whole units best.
  void adapt(size_t phases);

private:
  /// Maximum number of measured phases of a run; a layer has 10.
  static constexpr size_t kPhases = 1024;

  /// Share of each thread; the sum is 1. `bounds` has the shares of `current`;
  /// `wanted` changes with each run.
  std::vector<double> current, wanted;
  std::vector<uint32_t> bounds;
  /// [threads][kPhases]
  std::vector<int64_t> times;
  /// Nanoseconds of each thread in the phases that count.
  std::vector<double> sums;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_WORKSHARES_H
