//===- WorkShares.cpp - Static shares of the threads ----------------------===//

#include "engine/WorkShares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace qwen;

/// Shorter phases mostly wait and do not count.
static constexpr double kLeastNanoseconds = 5000;
/// A phase does not count if one thread took less than this part of another's
/// time: it had no units, or the other was interrupted.
static constexpr double kLeastPart = 0.1;
/// Part of the way that a share moves after a run, so that a thread keeps most
/// of its share after one interruption.
static constexpr double kStep = 0.25;
/// Shares become equal if none differs from an equal share by more than this
/// part of it.
static constexpr double kNearlyEqual = 0.06;
/// Shares stay until one is off by this part of it.
static constexpr double kTolerance = 0.03;
/// Part of an equal share that a thread always keeps. With less, its time would
/// not show that its core is free again.
static constexpr double kLeastShare = 0.125;

WorkShares::WorkShares(int32_t threads)
    : current(static_cast<size_t>(threads), 1.0 / threads), wanted(current),
      times(static_cast<size_t>(threads) * kPhases),
      sums(static_cast<size_t>(threads)) {
  bounds.reserve(static_cast<size_t>(threads) + 1);
  for (int64_t t = 0; t <= threads; ++t)
    bounds.push_back(static_cast<uint32_t>(t * 65536 / threads));
}

void WorkShares::adapt(size_t phases) {
  const size_t threads = current.size();
  if (threads == 1)
    return;
  std::ranges::fill(sums, 0.0);
  for (size_t p = 0; p < std::min(phases, kPhases); ++p) {
    double shortest = INFINITY, longest = 0;
    for (size_t t = 0; t < threads; ++t) {
      const auto time = static_cast<double>(times[t * kPhases + p]);
      shortest = std::min(shortest, time);
      longest = std::max(longest, time);
    }
    // If there are fewer units than threads, some threads have none.
    if (longest < kLeastNanoseconds || shortest < kLeastPart * longest)
      continue;
    for (size_t t = 0; t < threads; ++t)
      sums[t] += static_cast<double>(times[t * kPhases + p]);
  }
  if (std::ranges::any_of(sums, [](double sum) { return sum <= 0; }))
    return;

  double speeds = 0;
  for (size_t t = 0; t < threads; ++t)
    speeds += current[t] / sums[t];
  const double equal = 1.0 / static_cast<double>(threads);
  bool nearlyEqual = true;
  for (size_t t = 0; t < threads; ++t) {
    const double share = current[t] / sums[t] / speeds;
    wanted[t] =
        std::max(kLeastShare * equal, wanted[t] + kStep * (share - wanted[t]));
    nearlyEqual =
        nearlyEqual && std::abs(wanted[t] - equal) <= kNearlyEqual * equal;
  }
  const double total = std::accumulate(wanted.begin(), wanted.end(), 0.0);
  const auto next = [&](size_t t) {
    return nearlyEqual ? equal : wanted[t] / total;
  };
  bool far = false;
  for (size_t t = 0; t < threads; ++t)
    far = far || std::abs(next(t) - current[t]) > kTolerance * current[t];
  if (!far)
    return;
  double before = 0;
  for (size_t t = 0; t < threads; ++t) {
    bounds[t] = static_cast<uint32_t>(std::lround(before * 65536));
    current[t] = next(t);
    before += current[t];
  }
}
