//===- Track.h - A sequence of a job, with its known tokens -----*- C++ -*-===//
//
// The known tokens of a track are its prompt, the drawn tokens and drafts of
// the next ones. Its sequence holds the computed tokens. The row of a token
// decides the next token until that is settled.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_TRACK_H
#define QWEN_RUNTIME_ENGINE_TRACK_H

#include "engine/PrefixCache.h"
#include "engine/Sampler.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace qwen {

class Job;

/// One sequence of a job. JobPages writes its place, the job and its beams all
/// else, each by the functions below.
class Track {
public:
  Track(Job &job, Sampler sampler) : owner(job), sampler(std::move(sampler)) {}
  Track(const Track &) = delete;
  Track &operator=(const Track &) = delete;

  Job &job() { return owner; }
  const Job &job() const { return owner; }

  /// The known tokens, and those at their front that are no drafts.
  std::span<const int32_t> known() const { return tokens; }
  std::span<const int32_t> settled() const {
    return known().first(settledCount);
  }
  int64_t knownSize() const { return std::ssize(tokens); }
  int64_t settledSize() const { return static_cast<int64_t>(settledCount); }
  /// The first token whose row the job has not received.
  int64_t nextRow() const { return rowsEnd; }
  /// Whether a token that ran counts: it has not turned out to be a wrong
  /// draft.
  bool isCurrent(int64_t position, int32_t id) const {
    return position < knownSize() &&
           tokens[static_cast<size_t>(position)] == id;
  }
  /// The sequence while the job runs, with the computed tokens; -1 else.
  SequenceId sequence() const { return place.sequence; }

  /// Begins with the tokens of a prompt. There will be at most `most` tokens,
  /// and token `firstRow` has the first row to receive.
  void begin(std::span<const int32_t> prompt, size_t most, int64_t firstRow);
  void setSampler(Sampler next) { sampler = std::move(next); }
  /// Sets drafts of the next tokens.
  void draft(std::span<const int32_t> next);
  void dropDrafts() { tokens.resize(settledCount); }
  /// Number of drafts in this step, and of those that are settled. The first
  /// is 0 once it has been taken.
  int64_t takeDrafted() { return std::exchange(draftCount, 0); }
  int64_t accepted() const { return acceptedCount; }
  /// The row of a token has been received.
  void passRow(int64_t position) { rowsEnd = position + 1; }
  /// Whether the sampler has seen the token at `position`.
  bool hasSeen(size_t position) const { return position < seen; }
  /// Lets the sampler see the next token, before that is settled.
  void see(int32_t token);
  /// Makes a token the last settled one: a draft there is confirmed or, with
  /// all behind it, removed.
  void settle(size_t position, int32_t token);
  /// Makes `other` what the sampler is behind the drafts up to `position`.
  /// Threads may do so at the same time. Allocates nothing after reserve.
  void copySampler(Sampler &other, int64_t position) const;
  void reserveSampler(Sampler &other) const { other.reserveFor(sampler); }

  /// Takes over all tokens of another track of the search.
  void follow(const Track &other);
  /// Appends the next token of a beam.
  void extend(int32_t token);
  /// Sets the tokens of a beam, whose sampler has seen them.
  void assign(std::span<const int32_t> prompt, std::span<const int32_t> ids);
  /// Keeps the first tokens. The sampler does not forget the others.
  void shorten(size_t count);

private:
  friend class Beams;
  friend class Job;
  friend class JobPages;

  /// Where the computed tokens are.
  struct Place {
    SequenceId sequence = -1;
    PrefixCache::Prefix prefix = {};
    /// Pages that the prefix cache has loaded for it (PrefixCache::load).
    int64_t loaded = 0;
  };

  Job &owner;
  std::vector<int32_t> tokens;
  size_t settledCount = 0;
  int64_t rowsEnd = 0;
  int64_t draftCount = 0, acceptedCount = 0;
  Sampler sampler;
  /// Number of tokens that the sampler has seen: the settled ones and, while a
  /// call draws, drafts that are confirmed.
  size_t seen = 0;
  Place place;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TRACK_H
