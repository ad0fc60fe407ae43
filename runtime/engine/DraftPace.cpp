//===- DraftPace.cpp - Drafts that a step may run -------------------------===//

#include "engine/DraftPace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

using namespace qwen;

/// Steps after which one without drafts is measured again.
static constexpr int64_t kPlainSteps = 100;

/// Tokens a second that drafts must bring, in parts of those without.
static constexpr double kLeastGain = 1.02;

/// Steps in which the time must come back that a drafter takes to read a text.
static constexpr double kStepsBehind = 100;

/// The part of the time that drafts may take which seem not to pay, the most
/// that is kept of it, in steps, and the least that such a draft counts for: a
/// disturbed step without drafts seems long until others are measured.
static constexpr double kSavedRate = 0.01, kMostSaved = 2, kLeastPrice = 0.03;

/// Wrong trials in a row after which the least price doubles, and how often it
/// doubles. Beside other programs a draft costs more than the measured times
/// tell.
static constexpr int64_t kWrongTrials = 8, kMostDoublings = 3;

/// Further drafts for which there must be time before a drafter reads a text
/// for the sake of one: that has been paid for, and one may be wrong by chance.
static constexpr double kDraftsOfText = 2;

/// A draft that is less likely pays nowhere.
static constexpr double kLeastChance = 0.01;

/// Drafts that the shares of an answer and of all answers remember, and the
/// weight of the latter, in drafts, in the chances of an answer.
static constexpr double kOwnMemory = 16, kAllMemory = 200, kAllWeight = 2;

/// Shares before there are drafts, with the weight of kFirstWeight drafts, as
/// lookup has them in bench/texts.
static constexpr double kFirstWeight = 4;
static constexpr std::array<double, DraftShares::kKindClasses> kFirstShares = {
    0.5, 0.2, 0.3, 0.45, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9};

size_t DraftShares::classOf(int64_t strength) {
  if (strength >= kModelStrength)
    return kKindClasses + classOf(strength - kModelStrength);
  const auto place = static_cast<uint64_t>(std::max<int64_t>(strength, 0));
  if (place < 8)
    return place;
  return std::min<size_t>(static_cast<size_t>(std::bit_width(place)) + 4,
                          kKindClasses - 1);
}

DraftPace::DraftPace(int64_t rows, int64_t drafts) : steps(rows), calls(rows) {
  for (size_t i = 0; i < DraftShares::kClasses; ++i)
    all.classes[i] = {kFirstWeight *
                          kFirstShares[i % DraftShares::kKindClasses],
                      kFirstWeight};
  added.reserve(static_cast<size_t>(drafts));
  stepSeconds.reserve(static_cast<size_t>(drafts) + 1);
  rowsOfCalls.reserve(static_cast<size_t>(drafts));
  chances.reserve(static_cast<size_t>(rows));
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
  if (trial.shares == &shares) {
    // A drafter may have had fewer drafts.
    if (drafted <= trial.place) {
      saved += trial.cost;
    } else if (accepted > trial.place) {
      saved += trial.worth;
      wrongTrials = 0;
    } else {
      ++wrongTrials;
    }
    trial = {};
  }
  // What follows a wrong draft says nothing.
  for (int64_t i = 0; i < std::min(drafted, accepted + 1); ++i) {
    const size_t at = DraftShares::classOf(strength + i);
    addDraft(shares.classes[at], i < accepted, kOwnMemory);
    addDraft(all.classes[at], i < accepted, kAllMemory);
  }
}

void DraftPace::expect(double share) {
  std::fill(all.classes.begin() + DraftShares::kKindClasses, all.classes.end(),
            DraftShares::Share{kFirstWeight * share, kFirstWeight});
}

double DraftPace::chance(const DraftShares &shares, int64_t strength) const {
  const size_t at = DraftShares::classOf(strength);
  const DraftShares::Share &usual = all.classes[at], &own = shares.classes[at];
  return (own.right + kAllWeight * usual.right / usual.all) /
         (own.all + kAllWeight);
}

double DraftPace::nextChance(const DraftWish &wish) const {
  const double mean = chance(*wish.shares, wish.strength + wish.count);
  // Lookup has many classes, and each would be tried as long.
  if (wish.count > 0 || wish.strength < kModelStrength)
    return mean;
  const double known =
      wish.shares->classes[DraftShares::classOf(wish.strength)].all +
      kAllWeight;
  return std::min(1.0, mean + std::sqrt(mean * (1 - mean) / (known + 1)));
}

DraftWish *DraftPace::likeliest(std::span<DraftWish> wishes, bool hasRoom,
                                double &best) {
  DraftWish *found = nullptr;
  best = -1;
  for (size_t i = 0; i < wishes.size(); ++i) {
    DraftWish &wish = wishes[i];
    if (wish.count >= wish.most || (wish.count == 0 && !hasRoom))
      continue;
    const double next = chances[i] * nextChance(wish);
    if (next <= best)
      continue;
    best = next;
    found = &wish;
  }
  if (found)
    chances[static_cast<size_t>(found - wishes.data())] *=
        chance(*found->shares, found->strength + found->count);
  return found;
}

double DraftPace::speedOf(const DraftWish &wish, int64_t strength,
                          size_t wishes, int64_t rows) const {
  double tokens = static_cast<double>(rows), next = 1, ofCalls = 0;
  double most = 0;
  if (strength >= kModelStrength)
    ofCalls = wish.behind / kStepsBehind;
  for (int64_t i = 0; i < wish.most; ++i) {
    next *= chance(*wish.shares, strength + i);
    if (next < kLeastChance)
      break;
    tokens += next;
    // A call makes drafts of all answers.
    if (strength >= kModelStrength && calls.isMeasured())
      ofCalls += calls.secondsOf(static_cast<int64_t>(wishes)) /
                 static_cast<double>(wishes);
    most = std::max(most, tokens / (steps.secondsOf(rows + i + 1) + ofCalls));
  }
  return most;
}

void DraftPace::prefer(std::span<DraftWish> wishes, int64_t rows) const {
  for (DraftWish &wish : wishes)
    if (wish.other >= 0 && wish.most > 0 &&
        speedOf(wish, wish.other, wishes.size(), rows) >
            speedOf(wish, wish.strength, wishes.size(), rows))
      std::swap(wish.strength, wish.other);
}

double DraftPace::addToCalls(const DraftWish &wish) {
  if (wish.strength < kModelStrength)
    return 0;
  const auto place = static_cast<size_t>(wish.count);
  if (place == rowsOfCalls.size())
    rowsOfCalls.push_back(0);
  const int64_t rows = ++rowsOfCalls[place];
  // Its first drafts measure what they cost.
  if (!calls.isMeasured())
    return 0;
  return calls.secondsOf(rows) - (rows > 1 ? calls.secondsOf(rows - 1) : 0);
}

double DraftPace::leastPrice() const {
  const int64_t doublings =
      std::min(wrongTrials / kWrongTrials, kMostDoublings);
  return std::ldexp(kLeastPrice, static_cast<int>(doublings));
}

size_t DraftPace::tryOne(size_t count, double tokens) {
  if (count == added.size())
    return count;
  const DraftWish &next = *added[count];
  const auto place = static_cast<int64_t>(std::count(
      added.begin(), added.begin() + static_cast<int64_t>(count), &next));
  const double ofStep = stepSeconds[count];
  const double cost =
      std::max(leastPrice(), stepSeconds[count + 1] / ofStep - 1);
  const double behind =
      place == 0 && next.strength >= kModelStrength ? next.behind / ofStep : 0;
  price = cost;
  if (behind > 0)
    price += kDraftsOfText * std::max(kLeastPrice, cost - behind);
  if (price > saved)
    return count;
  saved -= cost;
  trial = {next.shares, place, cost, 1 / tokens};
  return count + 1;
}

void DraftPace::choose(std::span<DraftWish> wishes, int64_t rows, int64_t most,
                       int64_t mostTracks) {
  // Enough for the draft that costs most.
  saved = std::min(std::max(kMostSaved, price), saved + kSavedRate);
  trial = {};
  chances.assign(wishes.size(), 1.0);
  added.clear();
  rowsOfCalls.clear();
  // The gain of drafts is that over steps without.
  if (!steps.isKnown(rows, kPlainSteps))
    return;
  const auto without = static_cast<double>(rows);
  stepSeconds.assign(1, steps.secondsOf(rows));
  double tokens = without, ofCalls = 0, behind = 0;
  double best = kLeastGain, bestTokens = without;
  size_t count = 0;
  int64_t tracks = 0;
  while (std::ssize(added) < most) {
    double next;
    DraftWish *const wish = likeliest(wishes, tracks < mostTracks, next);
    if (!wish || (next < kLeastChance && !added.empty()))
      break;
    ofCalls += addToCalls(*wish);
    tracks += wish->count == 0;
    if (wish->count == 0 && wish->strength >= kModelStrength)
      behind += wish->behind;
    ++wish->count;
    added.push_back(wish);
    tokens += next;
    // Drafts make no step shorter: steps without them were slowed.
    const double ofStep = std::max(stepSeconds.front(),
                                   steps.secondsOf(rows + std::ssize(added))) +
                          ofCalls;
    stepSeconds.push_back(ofStep + behind);
    const double gain = tokens / without * stepSeconds.front() /
                        (ofStep + behind / kStepsBehind);
    if (gain > best) {
      best = gain;
      bestTokens = tokens;
      count = added.size();
    }
  }
  count = tryOne(count, bestTokens);
  for (DraftWish *const wish : std::span(added).subspan(count))
    --wish->count;
}
