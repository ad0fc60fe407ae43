//===- JobPages.h - The sequences and pages of jobs -------------*- C++ -*-===//
//
// Gives tracks their sequences and pages. The prefix cache has some pages of
// their tokens already.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_JOBPAGES_H
#define QWEN_RUNTIME_ENGINE_JOBPAGES_H

#include "engine/Job.h"

#include <utility>

namespace qwen {

class JobPages {
public:
  /// `state`, `store` and `events` must outlive the pages.
  JobPages(SequenceState &state, bool usesCache, int64_t snapshotEvery,
           PageStore *store, PageEvents *events, ForEachFn forEach)
      : state(state), usesCache(usesCache),
        cache(state, snapshotEvery, store, events, std::move(forEach)) {}

  /// Sets the prefix of a new job, and returns the number of its tokens that
  /// the prefix cache lacks.
  int64_t enter(Job &job) const;
  /// Loads what the store has of a job's tokens, if these fit beside the
  /// running jobs. Returns false if there is more to load when the time of this
  /// step is over.
  bool load(Job &job, const JobList &running);
  /// Opens the sequences of a job if its tokens fit beside the running jobs.
  bool open(Job &job, const JobList &running);
  /// Takes a snapshot, unless the job has no answer or several beams, and gives
  /// the store what it lacks.
  void keep(const Job &job);
  /// The same, and closes the sequences.
  void leave(Job &job);
  void close(Job &job);
  /// Gives a track of a beam search the positions of another, in place of its
  /// own. Needs a page unless they are full pages.
  void branch(const Track &parent, Track &child);
  /// Takes all positions of a track of a beam search.
  void empty(Track &track);
  /// Begins a job again with another prompt, which must pass requirePrompt. Its
  /// sequence keeps the longest prefix of it whose state is known.
  void restart(Job &job, const Continuation &next, const ModelInfo &model);

  /// Begins a step, which loads pages up to a time of steadyNanoseconds(), and
  /// one for each track in any case.
  void beginStep(int64_t loadsUntil) {
    promised = 0;
    lastLoad = loadsUntil;
  }
  /// Promises the pages of the next token of each track of a job and of its
  /// branches, or finds kept pages with that token. Returns false if no page is
  /// left.
  bool promise(Job &job);
  /// Free pages that are not promised.
  int64_t spare() const { return state.freePages() - promised; }
  /// Maximum number of tokens that a track may run with `spare` more pages.
  int64_t room(const Track &track, int64_t spare) const;
  /// Number of further pages that `count` tokens of a track take.
  int64_t pagesFor(const Track &track, int64_t count) const;
  /// Removes the drafts that were wrong, before further tokens are known.
  void removeDrafts(Track &track);
  /// Lets a track lose the tokens that it runs in this step. Returns false if
  /// too many tracks do.
  bool allowDrafts(const Track &track) {
    return state.reserveStates(track.sequence());
  }
  /// Maximum number of tracks that have drafts in a step.
  int64_t mostDrafting() const { return state.maxStepping(); }
  /// Removes the drafts, and keeps the full pages.
  void endStep(Track &track);
  /// The number of sequences of a job.
  static int64_t sequencesOf(const Job &job) {
    return std::ssize(job.allTracks());
  }

  /// Number of tokens of a track that have run, and of known ones that have
  /// not.
  int64_t computed(const Track &track) const {
    return state.length(track.sequence());
  }
  int64_t behind(const Track &track) const {
    return track.knownSize() - computed(track);
  }
  /// Why a job does not fit into all pages, or cannot go on.
  Error tooLong(const Job &job) const;
  Error noneLeft(const Job &job) const;
  /// Tokens that the prefix cache had, of all jobs.
  int64_t cachedTokens() const { return cached; }

private:
  void keep(const Track &track);
  /// Promises the page of one track.
  bool promiseNext(Track &track);
  /// Number of further pages that a running job needs for its known tokens.
  int64_t lacking(const Job &job) const;
  /// Pages that its beams will need when their sequences branch.
  static int64_t branchPages(const Job &job);
  void closeOne(Track &track);
  /// Number of further pages that all running jobs need for their known tokens.
  int64_t lacking(const JobList &running) const;
  /// The tokens of a track that it may have from the prefix cache, and one
  /// more.
  static std::span<const int32_t> sharedOf(const Track &track);
  /// The part of a track's tokens after its prefix that the prefix cache has.
  PrefixCache::Hit
  find(const Track &track,
       PrefixCache::Where where = PrefixCache::Where::Memory) const;
  /// Loads what follows a track's prefix. Returns whether all is there.
  bool load(Track &track);
  /// Gives the sequence the pages of a hit that it lacks, and restores the
  /// snapshot.
  void take(Track &track, const PrefixCache::Hit &hit);

  SequenceState &state;
  const bool usesCache;
  PrefixCache cache;
  int64_t promised = 0;
  int64_t lastLoad = 0;
  int64_t cached = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_JOBPAGES_H
