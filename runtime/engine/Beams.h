//===- Beams.h - The sequences of a beam search -----------------*- C++ -*-===//
//
// A beam search is one request with a job for each beam, of which only the one
// with the request is in the lists of a batcher. The prompt runs in one
// sequence. The others branch from it, and after each step from each other.
// docs/decisions/0023 has the rules.
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
  /// `first` has the request, and its tokens. Throws Error if the options of
  /// the search are out of range.
  Beams(Job &first, const ModelInfo &model);

  /// The jobs of the beams or, as long as their sequences have not branched,
  /// the one that runs what all beams share.
  std::span<Job *const> running() const {
    return std::span(jobs).first(runningCount);
  }
  std::span<Job *const> all() const { return jobs; }
  /// Tokens that the sequences have before they branch and behind that.
  int64_t sharedTokens() const { return std::ssize(jobs[0]->tokens); }
  int64_t branchTokens() const;
  /// Number of sequences that will branch from the one that runs.
  int64_t branches() const;

  /// Finds the candidates of a beam in the row of its last token. Threads may
  /// do so for different beams at the same time. Throws Error if a logit is
  /// NaN.
  void findCandidates(Job &job, std::span<const float> logits);
  /// Counts a beam that has its candidates.
  void offer() { ++offered; }
  /// After a step: branches the sequences if what they share has run, and gives
  /// each beam its next token if all have offered theirs.
  void endStep(JobPages &pages);
  /// After the sequences have been closed: makes the first run again what all
  /// beams share.
  void join();
  bool isDone() const { return search.isDone(); }
  /// As many answers as the request wants.
  std::vector<BeamTokens> answers() const;

private:
  /// Gives the sequences to the beams of the next step.
  void reorder(JobPages &pages);
  /// Gives beams what they have beside the shared tokens.
  void branch(JobPages &pages);

  const Job &first;
  BeamSearch search;
  /// Whether a beam has tokens of its own.
  bool hasBegun = false;
  std::vector<std::unique_ptr<Job>> others;
  /// The jobs of the beams in order, then those without one.
  std::vector<Job *> jobs, next;
  size_t runningCount = 1;
  /// By beam.
  std::vector<std::vector<BeamCandidate>> offers;
  std::vector<std::vector<CandidateKey>> keys;
  size_t offered = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_BEAMS_H
