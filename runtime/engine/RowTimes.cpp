//===- RowTimes.cpp - How long calls take by their rows -------------------===//

#include "engine/RowTimes.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

/// How much longer a call is expected to be for each further row, before it is
/// measured: between memory that is the limit and arithmetic that is.
static constexpr double kRowCost = 0.06;

/// Measurements of a number of rows before which their least counts.
static constexpr int64_t kFirstTimes = 3;

/// Times after which a number of rows is unknown: texts get longer, and other
/// programs start and end.
static constexpr int64_t kKnownTimes = 500;

/// How fast times follow longer and shorter ones. What disturbs a call makes it
/// longer.
static constexpr double kRiseRate = 0.1, kFallRate = 0.3;

/// The greatest deviation of a time that counts, a factor of 1.65.
static constexpr double kMostDeviation = 0.5;

void RowTimes::record(int64_t rows, double seconds) {
  if (seconds <= 0 || rows <= 0 || rows >= std::ssize(times))
    return;
  Measured &of = times[static_cast<size_t>(rows)];
  of.last = ++measured;
  latest = rows;
  greatest = std::max(greatest, rows);
  const double time = std::log(seconds);
  if (of.count++ < kFirstTimes) {
    of.time = of.count == 1 ? time : std::min(of.time, time);
    return;
  }
  const double off =
      std::clamp(time - of.time, -kMostDeviation, kMostDeviation);
  of.time += (off > 0 ? kRiseRate : kFallRate) * off;
}

bool RowTimes::isKnown(int64_t rows, int64_t within) const {
  const Measured &of = times[static_cast<size_t>(rows)];
  return of.count >= kFirstTimes && of.last + within >= measured;
}

double RowTimes::expectedSeconds(int64_t rows) const {
  // The nearest known numbers of rows on both sides, and the least.
  int64_t least = 0, below = 0, above = 0;
  for (int64_t i = 1; i <= greatest && !above; ++i) {
    if (!isKnown(i, kKnownTimes))
      continue;
    if (!least)
      least = i;
    (i <= rows ? below : above) = i;
  }
  const auto at = [&](int64_t i) {
    return std::exp(times[static_cast<size_t>(i)].time);
  };
  const auto usual = [](int64_t i) {
    return 1 + kRowCost * static_cast<double>(i - 1);
  };
  if (!below) {
    const int64_t other = above ? above : latest;
    return other ? at(other) * usual(rows) / usual(other) : usual(rows);
  }
  // Behind the last, times grow at least as fast as before it.
  double each = at(below) * kRowCost / usual(below);
  if (above)
    each = (at(above) - at(below)) / static_cast<double>(above - below);
  else if (below > least)
    each = std::max(each, (at(below) - at(least)) /
                              static_cast<double>(below - least));
  return at(below) + each * static_cast<double>(rows - below);
}

double RowTimes::secondsOf(int64_t rows) const {
  const Measured &of = times[static_cast<size_t>(rows)];
  const double expected = expectedSeconds(rows);
  // A long time may have had another reason.
  return of.count == 0 || of.count >= kFirstTimes
             ? expected
             : std::min(expected, std::exp(of.time));
}
