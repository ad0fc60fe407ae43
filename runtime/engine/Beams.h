//===- Beams.h - The sequences of a beam search -----------------*- C++ -*-===//
//
// The job of a beam search has a track for each beam. The prompt runs in one
// sequence. The other sequences branch from it, and after each step from each
// other. docs/decisions/0023 has the rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_BEAMS_H
#define QWEN_RUNTIME_ENGINE_BEAMS_H

#include "engine/Job.h"

namespace qwen {

class JobPages;

/// A step allocates nothing, but for what BeamSearch does.
class Beams {
public:
  /// `first` is the track of the job that runs the prompt. An answer has at
  /// most `mostTokens` tokens. `makeSampler` makes the sampler of another
  /// track. Throws Error if the options of the search are out of range.
  Beams(Track &first, int64_t mostTokens,
        const std::function<Sampler()> &makeSampler);

  /// The tracks of the beams. Before their sequences branch, the track that
  /// runs what all beams share.
  std::span<Track *const> running() const {
    return std::span(tracks).first(runningCount);
  }
  std::span<Track *const> all() const { return tracks; }
  /// Number of tokens that a sequence has when the others branch from it.
  int64_t sharedTokens() const { return tracks[0]->knownSize(); }
  /// Number of tokens of each beam after the branch.
  int64_t branchTokens() const;
  /// Number of sequences that will branch from the one that runs.
  int64_t branches() const;

  /// Finds the candidates of a beam in the row of its last token. Threads may
  /// do so for different beams at the same time. Throws Error if a logit is
  /// NaN.
  void findCandidates(Track &track, std::span<const float> logits);
  /// Counts a beam that has its candidates.
  void offer() { ++offered; }
  /// Follows a step. The sequences branch if the tokens that they share have
  /// run. Each beam gets its next token if all beams have offered theirs.
  void endStep(JobPages &pages);
  /// Follows the loss of all sequences. The first track runs again what all
  /// beams share.
  void join();
  bool isDone() const { return search.isDone(); }
  /// As many answers as the request wants.
  std::vector<BeamTokens> answers() const;

private:
  /// Gives the sequences to the beams of the next step.
  void reorder(JobPages &pages);
  /// Gives each beam its tokens behind the shared ones.
  void branch(JobPages &pages);

  const Job &job;
  BeamSearch search;
  /// Whether a beam has tokens of its own.
  bool hasBegun = false;
  std::vector<std::unique_ptr<Track>> others;
  /// The tracks of the beams in their order, then the tracks without a beam.
  std::vector<Track *> tracks, next;
  size_t runningCount = 1;
  /// The candidates of each beam.
  std::vector<std::vector<BeamCandidate>> offers;
  std::vector<std::vector<CandidateKey>> keys;
  size_t offered = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_BEAMS_H
