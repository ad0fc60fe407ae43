//===- Session.cpp - One sequence that is continued -----------------------===//

#include "engine/Session.h"

using namespace qwen;

Session::Session(Engine &engine, const SamplerOptions &options,
                 std::vector<int32_t> endTokens)
    : model(engine.manifest().model), batcher(engine, {.paced = false}),
      sampling(options), ends(std::move(endTokens)) {}

void Session::setSampling(const SamplerOptions &options) {
  sampling = options;
  if (job)
    job->setSampling(options, model);
}

void Session::setTokens(std::span<const int32_t> tokens, int64_t snapshotAt) {
  if (job) {
    job->prefix.snapshotAt = snapshotAt;
    batcher.restart(*job, tokens);
    return;
  }
  Request request;
  request.prompt.ids.assign(tokens.begin(), tokens.end());
  request.sampling = sampling;
  request.stopTokens = ends;
  request.snapshotAt = snapshotAt;
  request.isContinued = true;
  auto first = std::make_unique<Job>(std::move(request), 1, model);
  job = first.get();
  batcher.add(std::move(first));
}

std::optional<int32_t> Session::next(const std::function<bool()> &stop) {
  if (job->ended == EndReason::Stop)
    job->ended.reset();
  const size_t before = job->settled;
  while (job->settled == before) {
    if (job->ended == EndReason::Failed)
      throw Error(job->error, job->kind);
    if (job->ended || (stop && stop()))
      return std::nullopt;
    batcher.step();
  }
  return job->tokens.back();
}

std::span<const int32_t> Session::tokens() const { return job->tokens; }
