//===- JobPages.h - The sequences and pages of jobs -------------*- C++ -*-===//
//
// Gives jobs their sequences and pages, with what the prefix cache has of their
// tokens.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_JOBPAGES_H
#define QWEN_RUNTIME_ENGINE_JOBPAGES_H

#include "engine/Job.h"

namespace qwen {

class JobPages {
public:
  /// `state` must outlive the pages.
  JobPages(SequenceState &state, bool usesCache, int64_t snapshotEvery)
      : state(state), usesCache(usesCache), cache(state, snapshotEvery) {}

  /// Sets the prefix of a new job, and returns the number of its tokens that
  /// the prefix cache lacks.
  int64_t enter(Job &job) const;
  /// Opens the sequences of a job if its tokens fit beside those of the running
  /// jobs.
  bool open(Job &job, const JobList &running);
  /// Takes a snapshot, unless the job has no answer or several beams, and
  /// closes the sequences.
  void leave(Job &job);
  void close(Job &job);
  /// Gives a job of a beam search the positions of another, in place of its
  /// own. Needs a page unless they are full pages.
  void branch(const Job &parent, Job &child);
  /// Takes all positions of a job of a beam search.
  void empty(Job &job);
  /// Begins a job again with another prompt. Its sequence keeps the longest
  /// prefix of it whose state is known.
  void restart(Job &job, std::span<const int32_t> prompt,
               const ModelInfo &model);

  /// Begins to promise pages for a step.
  void beginStep() { promised = 0; }
  /// Promises the pages of the next token of each sequence of a job, or finds
  /// some that have it, and those of its branches. Returns false if no page is
  /// left.
  bool promise(Job &job);
  /// Free pages that are not promised.
  int64_t spare() const { return state.freePages() - promised; }
  /// Maximum number of tokens that a job may run with `spare` more pages.
  int64_t room(const Job &job, int64_t spare) const;
  /// Number of these pages that `count` tokens take.
  int64_t pagesFor(const Job &job, int64_t count) const;
  /// Removes the drafts that were wrong, and keeps the full pages.
  void endStep(Job &job);
  /// The number of sequences of a job.
  static int64_t sequencesOf(const Job &job) {
    return std::ssize(job.allSequences());
  }

  /// Number of tokens of a sequence that have run, and of known ones that have
  /// not.
  int64_t computed(const Job &job) const { return state.length(job.sequence); }
  int64_t behind(const Job &job) const {
    return std::ssize(job.tokens) - computed(job);
  }
  /// Why a job does not fit into all pages, or cannot go on.
  Error tooLong(const Job &job) const;
  Error noneLeft(const Job &job) const;
  /// Tokens that the prefix cache had, of all jobs.
  int64_t cachedTokens() const { return cached; }

private:
  /// `promise` for one sequence.
  bool promiseNext(Job &job);
  /// Number of further pages that a running job needs for its known tokens.
  int64_t lacking(const Job &job) const;
  /// Pages that its beams will need when their sequences branch.
  static int64_t branchPages(const Job &job);
  void closeOne(Job &job);
  /// What the prefix cache has of the job's tokens after its prefix.
  PrefixCache::Hit find(const Job &job) const;
  /// Gives the sequence the pages of a hit that it lacks, and restores the
  /// snapshot.
  void take(Job &job, const PrefixCache::Hit &hit);
  /// Makes the prefix of a job end where its sequence does.
  void cutPrefix(Job &job) const;

  SequenceState &state;
  const bool usesCache;
  PrefixCache cache;
  int64_t promised = 0;
  int64_t cached = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_JOBPAGES_H
