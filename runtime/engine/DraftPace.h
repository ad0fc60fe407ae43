//===- DraftPace.h - Drafts that a step may run -----------------*- C++ -*-===//
//
// A draft costs its row and saves a step if it is right. From the shares of
// drafts that were right and from measured times of steps and of a drafter's
// own calls, this class computes how many drafts give the most tokens a second.
// docs/decisions/0038 has the rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTPACE_H
#define QWEN_RUNTIME_ENGINE_DRAFTPACE_H

#include "engine/RowTimes.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// The strength of drafts that a model makes (Drafter::strength). Others come
/// without calls.
inline constexpr int64_t kModelStrength = int64_t{1} << 40;

/// Drafts and those that were right, by class. The last ones count most.
struct DraftShares {
  /// Classes of drafts of a model, and of others.
  static constexpr size_t kKindClasses = 12, kClasses = 2 * kKindClasses;
  /// The class of the draft at place `strength` (Drafter::strength): of each
  /// kind, up to 7 each has its own, then each power of two.
  static size_t classOf(int64_t strength);

  struct Share {
    double right = 0, all = 0;
  };
  std::array<Share, kClasses> classes = {};
};

/// The drafts that one answer may have in a step.
struct DraftWish {
  /// The shares of the answer.
  const DraftShares *shares;
  /// Drafter::strength, 0 or more.
  int64_t strength;
  int64_t most;
  /// Drafter::secondsBehind, which drafts of a model need.
  double behind = 0;
  /// What DraftPace::choose has chosen, at most `most`.
  int64_t count = 0;
  /// Drafter::otherStrength, or -1.
  int64_t other = -1;
};

class DraftPace {
public:
  /// For steps of at most `rows` rows with at most `drafts` drafts among them.
  DraftPace(int64_t rows, int64_t drafts);

  /// Sets Drafter::usualShare, before there are drafts.
  void expect(double share);

  /// Gives each wish the one of its two strengths that promises more tokens a
  /// second, in a step that has `rows` rows without drafts.
  void prefer(std::span<DraftWish> wishes, int64_t rows) const;
  /// Sets the counts of all wishes, for a step that has `rows` rows without
  /// drafts and has room for `most` drafts, of at most `mostTracks` wishes.
  /// Allocates nothing.
  void choose(std::span<DraftWish> wishes, int64_t rows, int64_t most,
              int64_t mostTracks = INT64_MAX);

  /// Records that the first `accepted` of `drafted` drafts were right.
  void accept(DraftShares &shares, int64_t strength, int64_t drafted,
              int64_t accepted);
  /// Records the time of a step without prompt tokens, less the drafter's.
  void record(int64_t rows, double seconds) { steps.record(rows, seconds); }
  /// Records a call of the drafter's own model (DraftCall).
  void recordCall(int64_t rows, double seconds) { calls.record(rows, seconds); }

  /// The chance that a draft is right if all drafts before it are.
  double chance(const DraftShares &shares, int64_t strength) const;

private:
  /// The wish whose next draft is the likeliest, or null. Without room for
  /// another answer, it is a wish that has drafts. `chances` has the chance of
  /// the last chosen draft of each wish.
  DraftWish *likeliest(std::span<DraftWish> wishes, bool hasRoom,
                       double &chance);
  /// The chance of the next draft of a wish if all drafts before it are right.
  /// Of a model's first one, it is the greatest chance that is still likely.
  double nextChance(const DraftWish &wish) const;

  /// The least that a draft counts for which seems not to pay, in steps.
  double leastPrice() const;
  /// Adds a draft to the first `count` of `added` if there is time for one that
  /// seems not to pay. Without it, the step gives `tokens`. Returns the number
  /// of drafts.
  size_t tryOne(size_t count, double tokens);

  /// The most tokens a second with drafts of `strength` for one of `wishes`.
  double speedOf(const DraftWish &wish, int64_t strength, size_t wishes,
                 int64_t rows) const;

  /// Adds the next draft of a wish to the calls of the drafter. Returns the
  /// seconds that they take longer.
  double addToCalls(const DraftWish &wish);

  DraftShares all;
  RowTimes steps, calls;
  /// The chance of each wish that all of its chosen drafts are right.
  std::vector<double> chances;
  /// The wishes of the drafts in the order in which they were added.
  std::vector<DraftWish *> added;
  /// The seconds of the step with none of them, with the first, and so on.
  std::vector<double> stepSeconds;
  /// The number of tracks that have a draft at each place behind their tokens.
  std::vector<int64_t> rowsOfCalls;
  /// Time for drafts that seem not to pay, and what the next one needs, in
  /// steps.
  double saved = 0, price = 1;
  /// Trials since the last one that was right.
  int64_t wrongTrials = 0;
  /// The draft of this step that seems not to pay: the answer, its place, what
  /// it costs, and what it brings if it is right.
  struct Trial {
    const DraftShares *shares = nullptr;
    int64_t place = 0;
    double cost = 0, worth = 0;
  };
  Trial trial;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTPACE_H
