//===- Beams.cpp - The sequences of a beam search -------------------------===//

#include "engine/Beams.h"

#include "engine/JobPages.h"

#include <algorithm>

using namespace qwen;

Beams::Beams(Track &first, int64_t mostTokens,
             const std::function<Sampler()> &makeSampler)
    : job(first.job()),
      search(job.request().beams, job.request().stopTokens, mostTokens) {
  const auto count = static_cast<size_t>(job.request().beams.beams);
  others.reserve(count - 1);
  tracks = {&first};
  while (tracks.size() < count) {
    others.push_back(std::make_unique<Track>(first.job(), makeSampler()));
    tracks.push_back(others.back().get());
    tracks.back()->begin(job.request().prompt.ids,
                         static_cast<size_t>(job.promptSize() + mostTokens), 0);
  }
  next.reserve(count);
  offers.resize(count);
  keys.resize(count);
  for (size_t i = 0; i < count; ++i) {
    offers[i].reserve(search.candidates());
    keys[i].reserve(search.candidates());
  }
}

int64_t Beams::branchTokens() const {
  return hasBegun ? job.promptSize() + std::ssize(search.beams()[0].ids)
                  : sharedTokens();
}

int64_t Beams::branches() const {
  if (runningCount > 1)
    return 0;
  return (hasBegun ? std::ssize(search.beams()) : std::ssize(tracks)) - 1;
}

void Beams::findCandidates(Track &track, std::span<const float> logits) {
  const auto beam =
      static_cast<size_t>(std::ranges::find(tracks, &track) - tracks.begin());
  const double sum =
      track.sampler.best(logits, search.candidates(), keys[beam]);
  offers[beam].clear();
  for (CandidateKey key : keys[beam])
    offers[beam].push_back(
        {key.id(),
         static_cast<float>(logits[static_cast<size_t>(key.id())] - sum),
         key.logit()});
}

void Beams::endStep(JobPages &pages) {
  const auto hasRun = [&](const Track *track) {
    return pages.behind(*track) == 0;
  };
  if (search.isDone() || !std::ranges::all_of(running(), hasRun))
    return;
  if (hasBegun && sharedTokens() < branchTokens())
    return branch(pages);
  if (offered < search.beams().size())
    return;
  search.advance(offers, [&](size_t beam, int32_t id, float logprob) {
    return tracks[beam]->sampler.penalized(id, logprob);
  });
  offered = 0;
  hasBegun = true;
  if (!search.isDone())
    reorder(pages);
}

void Beams::reorder(JobPages &pages) {
  const std::span<const BeamTokens> beams = search.beams();
  next.assign(beams.size(), nullptr);
  const auto isFree = [&](const Track *track) {
    return !std::ranges::count(next, track);
  };
  // The first child of a beam keeps its sequence.
  for (size_t i = 0; i < beams.size(); ++i)
    if (Track *parent = tracks[beams[i].parent]; isFree(parent))
      next[i] = parent;
  for (size_t i = 0; i < beams.size(); ++i) {
    if (next[i])
      continue;
    next[i] = *std::ranges::find_if(tracks, isFree);
    const Track &parent = *tracks[beams[i].parent];
    pages.branch(parent, *next[i]);
    next[i]->follow(parent);
  }
  for (size_t i = 0; i < beams.size(); ++i)
    next[i]->extend(beams[i].ids.back());
  runningCount = next.size();
  for (Track *track : tracks)
    if (isFree(track)) {
      pages.empty(*track);
      next.push_back(track);
    }
  std::swap(tracks, next);
}

void Beams::branch(JobPages &pages) {
  const std::span<const BeamTokens> beams = search.beams();
  runningCount = beams.size();
  for (Track *track : running()) {
    if (track != tracks[0])
      pages.branch(*tracks[0], *track);
  }
  for (size_t i = 0; i < beams.size(); ++i)
    tracks[i]->assign(job.request().prompt.ids, beams[i].ids);
}

void Beams::join() {
  if (!hasBegun)
    return;
  const std::span<const int32_t> shared = tracks[0]->known();
  // The last token of each beam gives its next row.
  size_t count = static_cast<size_t>(branchTokens()) - 1;
  for (const Track *track : running())
    count = std::min<size_t>(count,
                             std::ranges::mismatch(shared, track->known()).in1 -
                                 shared.begin());
  tracks[0]->shorten(count);
  runningCount = 1;
}

std::vector<BeamTokens> Beams::answers() const {
  return search.answers(static_cast<size_t>(job.request().answers));
}
