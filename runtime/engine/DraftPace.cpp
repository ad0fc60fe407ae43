//===- DraftPace.cpp - Drafts that a step may run -------------------------===//

#include "engine/DraftPace.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace qwen;

/// How much longer a step is expected to be for each further row, before it is
/// measured: between memory that is the limit and arithmetic that is.
static constexpr double kRowCost = 0.06;

/// Measurements of a number of rows before which their least counts.
static constexpr int64_t kFirstTimes = 3;

/// Steps after which one without drafts is measured again, and after which
/// other numbers of rows are unknown: texts get longer, and other programs
/// start and end.
static constexpr int64_t kPlainSteps = 100, kKnownSteps = 500;

/// How fast times follow longer and shorter ones. What disturbs a step makes it
/// longer.
static constexpr double kRiseRate = 0.1, kFallRate = 0.3;

/// The greatest deviation of a step's time that counts, a factor of 1.65.
static constexpr double kMostDeviation = 0.5;

/// Tokens a second that drafts must bring, in parts of those without.
static constexpr double kLeastGain = 1.02;

/// The part of the time that drafts may take which seem not to pay.
static constexpr double kSavedRate = 0.01;

/// A draft that is less likely pays nowhere.
static constexpr double kLeastChance = 0.01;

/// Drafts that the shares of an answer and of all answers remember, and the
/// weight of the latter, in drafts, in the chances of an answer.
static constexpr double kOwnMemory = 24, kAllMemory = 200, kAllWeight = 2;

/// Shares before there are drafts, with the weight of kFirstWeight drafts, as
/// lookup has them in bench/texts.
static constexpr double kFirstWeight = 4;
static constexpr std::array<double, DraftShares::kClasses> kFirstShares = {
    0.5, 0.2, 0.3, 0.45, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9};

size_t DraftShares::classOf(int64_t strength) {
  const auto place = static_cast<uint64_t>(std::max<int64_t>(strength, 0));
  if (place < 8)
    return place;
  return std::min<size_t>(static_cast<size_t>(std::bit_width(place)) + 4,
                          kClasses - 1);
}

DraftPace::DraftPace(int64_t rows, int64_t drafts)
    : steps(static_cast<size_t>(rows) + 1) {
  for (size_t i = 0; i < DraftShares::kClasses; ++i)
    all.classes[i] = {kFirstWeight * kFirstShares[i], kFirstWeight};
  added.reserve(static_cast<size_t>(drafts));
  chances.reserve(static_cast<size_t>(rows));
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

void DraftPace::record(int64_t rows, double seconds) {
  if (seconds <= 0 || rows <= 0 || rows >= std::ssize(steps))
    return;
  Measured &of = steps[static_cast<size_t>(rows)];
  of.last = ++measured;
  const double time = std::log(seconds);
  if (of.times++ < kFirstTimes) {
    of.time = of.times == 1 ? time : std::min(of.time, time);
    return;
  }
  const double off =
      std::clamp(time - of.time, -kMostDeviation, kMostDeviation);
  of.time += (off > 0 ? kRiseRate : kFallRate) * off;
}

bool DraftPace::isKnown(int64_t rows, int64_t within) const {
  const Measured &of = steps[static_cast<size_t>(rows)];
  return of.times >= kFirstTimes && of.last + within >= measured;
}

double DraftPace::expectedSeconds(int64_t rows) const {
  // The nearest known numbers of rows on both sides, and the least.
  int64_t least = 0, below = 0, above = 0;
  for (int64_t i = 1; i < std::ssize(steps) && !above; ++i) {
    if (!isKnown(i, kKnownSteps))
      continue;
    if (!least)
      least = i;
    (i <= rows ? below : above) = i;
  }
  const auto at = [&](int64_t i) {
    return std::exp(steps[static_cast<size_t>(i)].time);
  };
  const auto usual = [](int64_t i) {
    return 1 + kRowCost * static_cast<double>(i - 1);
  };
  if (!below)
    return above ? at(above) * usual(rows) / usual(above) : usual(rows);
  // Behind the last, times grow at least as fast as before it.
  double each = at(below) * kRowCost / usual(below);
  if (above)
    each = (at(above) - at(below)) / static_cast<double>(above - below);
  else if (below > least)
    each = std::max(each, (at(below) - at(least)) /
                              static_cast<double>(below - least));
  return at(below) + each * static_cast<double>(rows - below);
}

double DraftPace::secondsOf(int64_t rows) const {
  const Measured &of = steps[static_cast<size_t>(rows)];
  const double expected = expectedSeconds(rows);
  // A long time may have had another reason.
  return of.times == 0 || of.times >= kFirstTimes
             ? expected
             : std::min(expected, std::exp(of.time));
}

//===----------------------------------------------------------------------===//
// Drafts
//===----------------------------------------------------------------------===//

/// Adds a draft to a share that remembers about `memory` of them.
static void addDraft(DraftShares::Share &share, bool isRight, double memory) {
  const double kept = std::min(1.0, (memory - 1) / std::max(share.all, 1.0));
  share.all = share.all * kept + 1;
  share.right = share.right * kept + (isRight ? 1 : 0);
}

void DraftPace::accept(DraftShares &shares, int64_t strength, int64_t drafted,
                       int64_t accepted) {
  // What follows a wrong draft says nothing.
  for (int64_t i = 0; i < std::min(drafted, accepted + 1); ++i) {
    const size_t at = DraftShares::classOf(strength + i);
    addDraft(shares.classes[at], i < accepted, kOwnMemory);
    addDraft(all.classes[at], i < accepted, kAllMemory);
  }
}

double DraftPace::chance(const DraftShares &shares, int64_t strength) const {
  const size_t at = DraftShares::classOf(strength);
  const DraftShares::Share &usual = all.classes[at], &own = shares.classes[at];
  return (own.right + kAllWeight * usual.right / usual.all) /
         (own.all + kAllWeight);
}

DraftWish *DraftPace::likeliest(std::span<DraftWish> wishes, double &best) {
  DraftWish *found = nullptr;
  best = -1;
  for (size_t i = 0; i < wishes.size(); ++i) {
    DraftWish &wish = wishes[i];
    if (wish.count >= wish.most)
      continue;
    const double next =
        chances[i] * chance(*wish.shares, wish.strength + wish.count);
    if (next <= best)
      continue;
    best = next;
    found = &wish;
  }
  if (found)
    chances[static_cast<size_t>(found - wishes.data())] = best;
  return found;
}

void DraftPace::choose(std::span<DraftWish> wishes, int64_t rows,
                       int64_t most) {
  saved = std::min(1.0, saved + kSavedRate);
  chances.assign(wishes.size(), 1.0);
  added.clear();
  // The gain of drafts is that over steps without.
  if (!isKnown(rows, kPlainSteps))
    return;
  const double without = static_cast<double>(rows);
  const double seconds = secondsOf(rows);
  double tokens = without;
  double best = kLeastGain;
  size_t count = 0;
  while (std::ssize(added) < most) {
    double next;
    DraftWish *const wish = likeliest(wishes, next);
    if (!wish || (next < kLeastChance && !added.empty()))
      break;
    ++wish->count;
    added.push_back(wish);
    tokens += next;
    const double gain =
        tokens / without / secondsOf(rows + std::ssize(added)) * seconds;
    if (gain > best) {
      best = gain;
      count = added.size();
    }
  }
  // A class that was wrong is tried again, in every other step at most: a
  // disturbed step without drafts seems long until others are measured.
  if (count < added.size()) {
    const int64_t last = rows + static_cast<int64_t>(count);
    const double price =
        std::max(2 * kSavedRate, secondsOf(last + 1) / secondsOf(last) - 1);
    if (price <= saved) {
      saved -= price;
      ++count;
    }
  }
  for (DraftWish *const wish : std::span(added).subspan(count))
    --wish->count;
}
