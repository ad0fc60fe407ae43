//===- DraftPace.h - Drafts that a step may run -----------------*- C++ -*-===//
//
// A draft costs its row and saves a step if it is right. From the shares of
// drafts that were right and from measured times, this class computes how many
// drafts give the most tokens a second. docs/decisions/0038 has the rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTPACE_H
#define QWEN_RUNTIME_ENGINE_DRAFTPACE_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// Drafts and those that were right, by class. The last ones count most.
struct DraftShares {
  static constexpr size_t kClasses = 12;
  /// The class of the draft at place `strength` (Drafter::strength): up to 7
  /// each has its own, then each power of two.
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
  /// What DraftPace::choose has chosen, at most `most`.
  int64_t count = 0;
};

class DraftPace {
public:
  /// For steps of at most `rows` rows, of which at most `drafts` are drafts.
  DraftPace(int64_t rows, int64_t drafts);

  /// Sets the counts of all wishes, for a step that has `rows` rows without
  /// drafts and has room for `most` drafts. Allocates nothing.
  void choose(std::span<DraftWish> wishes, int64_t rows, int64_t most);

  /// Records that the first `accepted` of `drafted` drafts were right.
  void accept(DraftShares &shares, int64_t strength, int64_t drafted,
              int64_t accepted);
  /// Records the time of a step without prompt tokens.
  void record(int64_t rows, double seconds);

  /// The seconds of a step of `rows` rows, as measured or expected from other
  /// steps. One number of rows must be known.
  double secondsOf(int64_t rows) const;
  /// Whether steps of `rows` rows have been measured often, and lately.
  bool isKnown(int64_t rows, int64_t steps) const;
  /// The chance that a draft is right if all drafts before it are.
  double chance(const DraftShares &shares, int64_t strength) const;

private:
  /// What is known of steps of a number of rows.
  struct Measured {
    /// The logarithm of the seconds, on average.
    double time = 0;
    int64_t times = 0;
    /// The number of the last step of these rows.
    int64_t last = 0;
  };
  /// The seconds by numbers of rows that are known.
  double expectedSeconds(int64_t rows) const;
  /// The wish whose next draft is the likeliest, or null. `chances` are those
  /// of the last chosen drafts.
  DraftWish *likeliest(std::span<DraftWish> wishes, double &chance);

  DraftShares all;
  std::vector<Measured> steps;
  /// Number of measured steps.
  int64_t measured = 0;
  /// The chance of each wish that all of its chosen drafts are right.
  std::vector<double> chances;
  /// The wishes of the drafts in the order in which they were added.
  std::vector<DraftWish *> added;
  /// Time for drafts that seem not to pay, in steps.
  double saved = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTPACE_H
