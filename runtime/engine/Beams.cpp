//===- Beams.cpp - The sequences of a beam search -------------------------===//

#include "engine/Beams.h"

#include "engine/JobPages.h"

#include <algorithm>

using namespace qwen;

Beams::Beams(Job &firstJob, const ModelInfo &model)
    : first(firstJob),
      search(first.request.beams, first.request.stopTokens,
             static_cast<int64_t>(first.mostTokens) - first.promptSize()) {
  const auto count = static_cast<size_t>(first.request.beams.beams);
  others.reserve(count - 1);
  jobs = {&firstJob};
  while (jobs.size() < count)
    jobs.push_back(
        others.emplace_back(std::make_unique<Job>(firstJob, model)).get());
  next.reserve(count);
  offers.resize(count);
  keys.resize(count);
  for (size_t i = 0; i < count; ++i) {
    offers[i].reserve(search.candidates());
    keys[i].reserve(search.candidates());
  }
}

int64_t Beams::branchTokens() const {
  return hasBegun ? first.promptSize() + std::ssize(search.beams()[0].ids)
                  : sharedTokens();
}

int64_t Beams::branches() const {
  if (runningCount > 1)
    return 0;
  return (hasBegun ? std::ssize(search.beams()) : std::ssize(jobs)) - 1;
}

void Beams::findCandidates(Job &job, std::span<const float> logits) {
  const auto beam =
      static_cast<size_t>(std::ranges::find(jobs, &job) - jobs.begin());
  const double sum = job.sampler.best(logits, search.candidates(), keys[beam]);
  offers[beam].clear();
  for (CandidateKey key : keys[beam])
    offers[beam].push_back(
        {key.id(),
         static_cast<float>(logits[static_cast<size_t>(key.id())] - sum),
         key.logit()});
}

void Beams::endStep(JobPages &pages) {
  const auto hasRun = [&](const Job *job) { return pages.behind(*job) == 0; };
  if (search.isDone() || !std::ranges::all_of(running(), hasRun))
    return;
  if (hasBegun && sharedTokens() < branchTokens())
    return branch(pages);
  if (offered < search.beams().size())
    return;
  search.advance(offers, [&](size_t beam, int32_t id, float logprob) {
    return jobs[beam]->sampler.penalized(id, logprob);
  });
  offered = 0;
  hasBegun = true;
  if (!search.isDone())
    reorder(pages);
}

void Beams::reorder(JobPages &pages) {
  const std::span<const BeamTokens> beams = search.beams();
  next.assign(beams.size(), nullptr);
  const auto isFree = [&](const Job *job) {
    return !std::ranges::count(next, job);
  };
  // The first child of a beam keeps its sequence.
  for (size_t i = 0; i < beams.size(); ++i)
    if (Job *parent = jobs[beams[i].parent]; isFree(parent))
      next[i] = parent;
  for (size_t i = 0; i < beams.size(); ++i) {
    if (next[i])
      continue;
    next[i] = *std::ranges::find_if(jobs, isFree);
    const Job &parent = *jobs[beams[i].parent];
    pages.branch(parent, *next[i]);
    next[i]->follow(parent);
  }
  for (size_t i = 0; i < beams.size(); ++i)
    next[i]->extend(beams[i].ids.back());
  runningCount = next.size();
  for (Job *job : jobs)
    if (isFree(job)) {
      pages.empty(*job);
      next.push_back(job);
    }
  std::swap(jobs, next);
}

void Beams::branch(JobPages &pages) {
  const std::span<const BeamTokens> beams = search.beams();
  runningCount = beams.size();
  for (Job *job : running()) {
    if (job != jobs[0])
      pages.branch(*jobs[0], *job);
  }
  for (size_t i = 0; i < beams.size(); ++i) {
    std::vector<int32_t> &tokens = jobs[i]->tokens;
    tokens = first.request.prompt.ids;
    tokens.insert(tokens.end(), beams[i].ids.begin(), beams[i].ids.end());
    jobs[i]->settled = tokens.size();
  }
}

void Beams::join() {
  if (!hasBegun)
    return;
  std::vector<int32_t> &shared = jobs[0]->tokens;
  // The last token of each beam gives its next row.
  size_t count = static_cast<size_t>(branchTokens()) - 1;
  for (const Job *job : running())
    count = std::min<size_t>(
        count, std::ranges::mismatch(shared, job->tokens).in1 - shared.begin());
  shared.resize(count);
  jobs[0]->settled = count;
  runningCount = 1;
}

std::vector<BeamTokens> Beams::answers() const {
  return search.answers(static_cast<size_t>(first.request.answers));
}
