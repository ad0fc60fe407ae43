//===- JobPages.cpp - The sequences and pages of jobs ---------------------===//

#include "engine/JobPages.h"

#include "engine/Beams.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>

using namespace qwen;

int64_t JobPages::enter(Job &job) const {
  job.prefix = {.identity = Identity(job.request.prompt),
                .snapshotAt = job.request.snapshotAt};
  return std::ssize(job.tokens) - find(job).gain;
}

PrefixCache::Hit JobPages::find(const Job &job) const {
  if (!usesCache)
    return {.pages = job.prefix.pages};
  return cache.find(std::span(job.tokens).first(job.sharedTokens()),
                    job.prefix);
}

void JobPages::take(Job &job, const PrefixCache::Hit &hit) {
  cache.share(job.sequence, job.tokens, job.prefix, hit);
  cache.resume(job.sequence, hit);
  cached += hit.gain;
  if (!job.wasPreempted)
    job.cachedTokens += hit.gain;
}

int64_t JobPages::branchPages(const Job &job) {
  if (!job.beams || job.beams->branches() == 0)
    return 0;
  const int64_t shared = job.beams->sharedTokens(),
                all = ceilDiv(job.beams->branchTokens(), kPageTokens);
  return all - ceilDiv(shared, kPageTokens) +
         job.beams->branches() * (all - shared / kPageTokens);
}

int64_t JobPages::lacking(const Job &job) const {
  int64_t pages = branchPages(job);
  for (const Job *each : job.sequences())
    pages += ceilDiv(std::ssize(each->tokens), kPageTokens) + 1 -
             ceilDiv(computed(*each), kPageTokens);
  return pages;
}

bool JobPages::open(Job &job, const JobList &running) {
  if (state.freeSequences() < sequencesOf(job))
    return false;
  int64_t needed = branchPages(job);
  for (const std::unique_ptr<Job> &other : running.all())
    needed += lacking(*other);
  for (Job *each : job.allSequences())
    each->sequence = state.open();
  Job &front = *job.sequences().front();
  const PrefixCache::Hit hit = find(front);
  cache.share(front.sequence, front.tokens, front.prefix, hit);
  needed += ceilDiv(std::ssize(front.tokens), kPageTokens) - hit.pages;
  if (needed > state.freePages()) {
    close(job);
    return false;
  }
  take(front, hit);
  return true;
}

void JobPages::leave(Job &job) {
  if (usesCache && !job.request.rows && job.sequences().size() == 1) {
    const Job &front = *job.sequences().front();
    cache.snapshot(front.sequence, front.tokens, front.prefix);
  }
  close(job);
}

void JobPages::closeOne(Job &job) {
  state.close(job.sequence);
  job.sequence = -1;
  job.prefix.pages = 0;
  job.prefix.last = 0;
}

void JobPages::close(Job &job) {
  for (Job *each : job.allSequences())
    closeOne(*each);
}

void JobPages::branch(const Job &parent, Job &child) {
  state.close(child.sequence);
  child.sequence = state.branch(parent.sequence, computed(parent));
  child.prefix = parent.prefix;
}

void JobPages::empty(Job &job) {
  state.truncate(job.sequence, 0);
  cutPrefix(job);
}

void JobPages::cutPrefix(Job &job) const {
  PrefixCache::Prefix &prefix = job.prefix;
  prefix.pages = std::min(prefix.pages, computed(job) / kPageTokens);
  prefix.last = prefix.pages
                    ? state.serial(state.page(job.sequence, prefix.pages - 1))
                    : 0;
}

void JobPages::restart(Job &job, std::span<const int32_t> prompt,
                       const ModelInfo &model) {
  model.requirePrompt(prompt, "the prompt");
  if (job.sequence < 0) {
    // It still waits, and gets its pages when it begins.
    job.restart(prompt, model);
    return;
  }
  const auto differ = std::ranges::mismatch(job.tokens, prompt);
  // The tokens whose rows are wanted run again even if they have run.
  int64_t same = std::min({differ.in1 - job.tokens.begin(),
                           job.firstRow(std::ssize(prompt)), computed(job)});
  cache.snapshot(job.sequence, job.tokens, job.prefix);
  // The snapshots of all sequences are in the cache.
  if (state.maxSnapshots())
    same = 0;
  state.truncate(job.sequence, state.reachable(job.sequence, same));
  cutPrefix(job);
  job.restart(prompt, model);
  if (same == 0)
    take(job, find(job));
}

bool JobPages::promiseNext(Job &job) {
  if (computed(job) % kPageTokens)
    return true;
  const PrefixCache::Hit hit = find(job);
  // A snapshot may need one more page.
  if (state.freePages() - (hit.pages - job.prefix.pages) > promised)
    take(job, hit);
  if (computed(job) % kPageTokens)
    return true;
  if (spare() <= 0)
    return false;
  ++promised;
  return true;
}

bool JobPages::promise(Job &job) {
  const int64_t before = promised;
  bool isGiven = true;
  for (Job *each : job.sequences())
    isGiven = isGiven && promiseNext(*each);
  // Each branch copies the partial page of the shared tokens.
  const int64_t copies = job.beams && job.beams->sharedTokens() % kPageTokens
                             ? job.beams->branches()
                             : 0;
  if (isGiven && spare() >= copies) {
    promised += copies;
    return true;
  }
  promised = before;
  return false;
}

int64_t JobPages::room(const Job &job, int64_t pages) const {
  const int64_t length = computed(job);
  return std::min(kPageTokens - length % kPageTokens + pages * kPageTokens,
                  cache.untilSnapshot(job.prefix, length));
}

int64_t JobPages::pagesFor(const Job &job, int64_t count) const {
  const int64_t more = count - kPageTokens + computed(job) % kPageTokens;
  return ceilDiv(std::max<int64_t>(more, 0), kPageTokens);
}

static std::string ofBeams(const Job &job) {
  return job.beams ? " in each of " + std::to_string(job.request.beams.beams) +
                         " beams"
                   : "";
}

Error JobPages::tooLong(const Job &job) const {
  if (sequencesOf(job) > state.maxSequences())
    return Error("num-beams is " + std::to_string(sequencesOf(job)) +
                     " when there are " + std::to_string(state.maxSequences()) +
                     " sequences",
                 ErrorKind::NoSequence);
  return Error("the request has " + std::to_string(job.tokens.size()) +
                   " tokens" + ofBeams(job) + " when all " +
                   std::to_string(state.pages()) +
                   " pages of the KV cache have room for " +
                   std::to_string(state.pages() * kPageTokens),
               ErrorKind::NoPage);
}

Error JobPages::noneLeft(const Job &job) const {
  return Error("the request has " + std::to_string(job.tokens.size()) +
                   " tokens" + ofBeams(job) + " and " + state.describeFull(),
               ErrorKind::NoPage);
}

void JobPages::endStep(Job &job) {
  job.tokens.resize(job.settled);
  const int64_t most = std::ssize(job.tokens);
  if (!job.owner->beams && computed(job) >= most &&
      job.settled > job.request.prompt.ids.size()) {
    state.truncate(job.sequence, state.reachable(job.sequence, most - 1));
    cutPrefix(job);
  }
  if (usesCache)
    cache.keep(job.sequence, job.tokens, job.prefix);
}
