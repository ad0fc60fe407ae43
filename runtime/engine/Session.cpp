//===- Session.cpp - One sequence that is continued -----------------------===//

#include "engine/Session.h"

using namespace qwen;

Session::Session(Engine &engine, const SamplerOptions &options,
                 std::vector<int32_t> endTokens, PageStore *store,
                 RootRef promptRoot)
    : model(engine.manifest().model),
      batcher(engine, {.paced = false, .store = store}), sampling(options),
      ends(std::move(endTokens)), root(std::move(promptRoot)) {}

void Session::setSampling(const SamplerOptions &options) {
  sampling = options;
  isChanged = true;
}

void Session::setTokens(std::span<const int32_t> tokens, int64_t snapshotAt) {
  if (job) {
    batcher.restart(
        *job, {.prompt = tokens,
               .snapshotAt = snapshotAt,
               .sampling = isChanged ? std::optional(sampling) : std::nullopt});
    given = tokens.size();
    isChanged = false;
    return;
  }
  Request request;
  request.prompt.ids.assign(tokens.begin(), tokens.end());
  request.prompt.root = root;
  request.sampling = sampling;
  request.stopTokens = ends;
  request.snapshotAt = snapshotAt;
  request.isContinued = true;
  auto first = std::make_unique<Job>(std::move(request), 1, model);
  job = first.get();
  given = tokens.size();
  isChanged = false;
  batcher.add(std::move(first));
}

std::optional<int32_t> Session::next(const std::function<bool()> &stop) {
  const auto isStopped = [&] { return stop && stop(); };
  if (const auto settled = job->track().settled(); settled.size() > given)
    return isStopped() ? std::nullopt : std::optional(settled[given++]);
  job->goOn();
  while (job->track().settled().size() == given) {
    job->throwIfFailed();
    if (job->ended() || isStopped())
      return std::nullopt;
    batcher.step();
  }
  return job->track().settled()[given++];
}

void Session::keep() {
  if (job)
    batcher.keep(*job);
}

std::span<const int32_t> Session::tokens() const {
  return job->track().settled().first(given);
}
