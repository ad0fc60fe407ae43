//===- JobPages.cpp - The sequences and pages of jobs ---------------------===//

#include "engine/JobPages.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>

using namespace qwen;

int64_t JobPages::enter(Job &job) const {
  job.prefix = {.salt = job.request.salt, .snapshotAt = job.request.snapshotAt};
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

bool JobPages::open(Job &job, const JobList &running) {
  if (state.freeSequences() == 0)
    return false;
  int64_t needed = 0;
  for (const std::unique_ptr<Job> &other : running.all())
    needed += ceilDiv(std::ssize(other->tokens), kPageTokens) + 1 -
              ceilDiv(computed(*other), kPageTokens);
  job.sequence = state.open();
  const PrefixCache::Hit hit = find(job);
  cache.share(job.sequence, job.tokens, job.prefix, hit);
  needed += ceilDiv(std::ssize(job.tokens), kPageTokens) - hit.pages;
  if (needed > state.freePages()) {
    close(job);
    return false;
  }
  take(job, hit);
  return true;
}

void JobPages::leave(Job &job) {
  if (usesCache && !job.request.rows)
    cache.snapshot(job.sequence, job.tokens, job.prefix);
  close(job);
}

void JobPages::close(Job &job) {
  state.close(job.sequence);
  job.sequence = -1;
  job.prefix.pages = 0;
  job.prefix.last = 0;
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

bool JobPages::promise(Job &job) {
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

int64_t JobPages::room(const Job &job, int64_t pages) const {
  const int64_t length = computed(job);
  return std::min(kPageTokens - length % kPageTokens + pages * kPageTokens,
                  cache.untilSnapshot(job.prefix, length));
}

int64_t JobPages::pagesFor(const Job &job, int64_t count) const {
  const int64_t more = count - kPageTokens + computed(job) % kPageTokens;
  return ceilDiv(std::max<int64_t>(more, 0), kPageTokens);
}

Error JobPages::tooLong(const Job &job) const {
  return Error("the request has " + std::to_string(job.tokens.size()) +
                   " tokens when all " + std::to_string(state.pages()) +
                   " pages of the KV cache have room for " +
                   std::to_string(state.pages() * kPageTokens),
               ErrorKind::NoPage);
}

Error JobPages::noneLeft(const Job &job) const {
  return Error("the request has " + std::to_string(job.tokens.size()) +
                   " tokens and " + state.describeFull(),
               ErrorKind::NoPage);
}

void JobPages::endStep(Job &job) {
  job.tokens.resize(job.settled);
  const int64_t most = std::ssize(job.tokens);
  if (computed(job) >= most && job.settled > job.request.prompt.size()) {
    state.truncate(job.sequence, state.reachable(job.sequence, most - 1));
    cutPrefix(job);
  }
  if (usesCache)
    cache.keep(job.sequence, job.tokens, job.prefix);
}
