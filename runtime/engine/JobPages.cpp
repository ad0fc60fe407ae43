//===- JobPages.cpp - The sequences and pages of jobs ---------------------===//

#include "engine/JobPages.h"

#include "engine/Beams.h"
#include "engine/SteadyClock.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <new>

using namespace qwen;

int64_t JobPages::enter(Job &job) const {
  Track &track = job.track();
  track.place.prefix = {.identity = Identity(job.request().prompt),
                        .snapshotAt = job.request().snapshotAt};
  return track.knownSize() -
         find(track, PrefixCache::Where::MemoryAndStore).gain;
}

std::span<const int32_t> JobPages::sharedOf(const Track &track) {
  return track.known().first(track.job().sharedTokens(track));
}

PrefixCache::Hit JobPages::find(const Track &track,
                                PrefixCache::Where where) const {
  const PrefixCache::Prefix &prefix = track.place.prefix;
  if (!usesCache)
    return {.pages = prefix.pages};
  return cache.find(sharedOf(track), prefix, where);
}

bool JobPages::load(Track &track) {
  return !usesCache ||
         cache.load(sharedOf(track), track.place.prefix, track.place.loaded,
                    [&] { return steadyNanoseconds() >= lastLoad; });
}

bool JobPages::load(Job &job, const JobList &running) {
  Track &front = *job.tracks().front();
  // Pages that are loaded for nothing take the place of others.
  if (state.freeSequences() < sequencesOf(job) ||
      lacking(running) + branchPages(job) +
              ceilDiv(front.knownSize(), kPageTokens) >
          state.freePages())
    return true;
  try {
    return load(front);
  } catch (const std::bad_alloc &) {
    // The tokens run in place of it.
    return true;
  }
}

void JobPages::take(Track &track, const PrefixCache::Hit &hit) {
  cache.share(track.sequence(), track.known(), track.place.prefix, hit);
  cache.resume(track.sequence(), hit);
  cached += hit.gain;
  track.job().addCached(track, hit.gain);
}

int64_t JobPages::branchPages(const Job &job) {
  const Beams *beams = job.beams();
  if (!beams || beams->branches() == 0)
    return 0;
  const int64_t shared = beams->sharedTokens(),
                all = ceilDiv(beams->branchTokens(), kPageTokens);
  return all - ceilDiv(shared, kPageTokens) +
         beams->branches() * (all - shared / kPageTokens);
}

int64_t JobPages::lacking(const Job &job) const {
  int64_t pages = branchPages(job);
  for (const Track *track : job.tracks())
    pages += ceilDiv(track->knownSize(), kPageTokens) + 1 -
             ceilDiv(computed(*track), kPageTokens);
  return pages;
}

int64_t JobPages::lacking(const JobList &running) const {
  int64_t pages = 0;
  for (const std::unique_ptr<Job> &job : running.all())
    pages += lacking(*job);
  return pages;
}

bool JobPages::open(Job &job, const JobList &running) {
  if (state.freeSequences() < sequencesOf(job))
    return false;
  int64_t needed = branchPages(job) + lacking(running);
  for (Track *track : job.allTracks())
    track->place.sequence = state.open();
  Track &front = *job.tracks().front();
  const PrefixCache::Hit hit = find(front);
  cache.share(front.sequence(), front.known(), front.place.prefix, hit);
  needed += ceilDiv(front.knownSize(), kPageTokens) - hit.pages;
  if (needed > state.freePages()) {
    close(job);
    return false;
  }
  take(front, hit);
  return true;
}

void JobPages::keep(const Track &track) {
  cache.snapshot(track.sequence(), track.known(), track.place.prefix);
  cache.leave(track.sequence(), track.known(), track.place.prefix);
}

void JobPages::keep(const Job &job) {
  if (usesCache && !job.request().rows && job.tracks().size() == 1)
    keep(*job.tracks().front());
}

void JobPages::leave(Job &job) {
  keep(job);
  close(job);
}

void JobPages::closeOne(Track &track) {
  Track::Place &place = track.place;
  state.close(place.sequence);
  place.sequence = -1;
  place.prefix.clear();
  place.loaded = 0;
}

void JobPages::close(Job &job) {
  for (Track *track : job.allTracks())
    closeOne(*track);
}

void JobPages::branch(const Track &parent, Track &child) {
  state.close(child.sequence());
  child.place = {.sequence = state.branch(parent.sequence(), computed(parent)),
                 .prefix = parent.place.prefix};
}

void JobPages::empty(Track &track) {
  state.truncate(track.sequence(), 0);
  cache.cut(track.sequence(), track.place.prefix);
}

void JobPages::restart(Job &job, const Continuation &next,
                       const ModelInfo &model) {
  Track &track = job.track();
  track.place.prefix.snapshotAt = next.snapshotAt;
  if (track.sequence() < 0) {
    // It still waits, and gets its pages when it begins.
    job.restart(next, model);
    return;
  }
  const auto common = std::ranges::mismatch(track.known(), next.prompt).in1 -
                      track.known().begin();
  const int64_t before = computed(track);
  keep(track);
  job.restart(next, model);
  // The tokens whose rows are wanted run again even if they have run.
  int64_t same = std::min(
      {static_cast<int64_t>(common), job.firstRow(job.promptSize()), before});
  // The snapshots of all sequences are in the cache.
  if (state.maxSnapshots())
    same = 0;
  state.truncate(track.sequence(), state.reachable(track.sequence(), same));
  cache.cut(track.sequence(), track.place.prefix);
  track.place.loaded = 0;
  if (same)
    return;
  while (!load(track))
    ;
  take(track, find(track));
}

bool JobPages::promiseNext(Track &track) {
  if (computed(track) % kPageTokens)
    return true;
  load(track);
  const PrefixCache::Hit hit = find(track);
  // A snapshot may need one more page.
  if (state.freePages() - (hit.pages - track.place.prefix.pages) > promised)
    take(track, hit);
  if (computed(track) % kPageTokens)
    return true;
  if (spare() <= 0)
    return false;
  ++promised;
  return true;
}

bool JobPages::promise(Job &job) {
  const int64_t before = promised;
  bool isGiven = true;
  for (Track *track : job.tracks())
    isGiven = isGiven && promiseNext(*track);
  // Each branch copies the partial page of the shared tokens.
  const Beams *beams = job.beams();
  const int64_t copies =
      beams && beams->sharedTokens() % kPageTokens ? beams->branches() : 0;
  if (isGiven && spare() >= copies) {
    promised += copies;
    return true;
  }
  promised = before;
  return false;
}

int64_t JobPages::room(const Track &track, int64_t pages) const {
  const int64_t length = computed(track);
  return std::min(kPageTokens - length % kPageTokens + pages * kPageTokens,
                  cache.untilSnapshot(track.place.prefix, length));
}

int64_t JobPages::pagesFor(const Track &track, int64_t count) const {
  const int64_t more = count - kPageTokens + computed(track) % kPageTokens;
  return ceilDiv(std::max<int64_t>(more, 0), kPageTokens);
}

/// The known tokens of the job's first track.
static std::string sizeOf(const Job &job) {
  std::string text = std::to_string(job.track().knownSize()) + " tokens";
  if (job.beams())
    text +=
        " in each of " + std::to_string(job.request().beams.beams) + " beams";
  return text;
}

Error JobPages::tooLong(const Job &job) const {
  if (sequencesOf(job) > state.maxSequences())
    return Error("num-beams is " + std::to_string(sequencesOf(job)) +
                     " when there are " + std::to_string(state.maxSequences()) +
                     " sequences",
                 ErrorKind::NoSequence);
  return Error("the request has " + sizeOf(job) + " when all " +
                   std::to_string(state.pages()) +
                   " pages of the KV cache have room for " +
                   std::to_string(state.pages() * kPageTokens),
               ErrorKind::NoPage);
}

Error JobPages::noneLeft(const Job &job) const {
  return Error("the request has " + sizeOf(job) + " and " +
                   state.describeFull(),
               ErrorKind::NoPage);
}

void JobPages::removeDrafts(Track &track) {
  track.dropDrafts();
  const int64_t most = track.knownSize();
  if (!track.job().beams() && computed(track) >= most &&
      most > track.job().promptSize()) {
    state.truncate(track.sequence(),
                   state.reachable(track.sequence(), most - 1));
    cache.cut(track.sequence(), track.place.prefix);
  }
}

void JobPages::endStep(Track &track) {
  removeDrafts(track);
  state.releaseStates(track.sequence());
  if (usesCache)
    cache.keep(track.sequence(), track.known(), track.place.prefix);
}
