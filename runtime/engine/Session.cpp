//===- Session.cpp - One sequence that is continued -----------------------===//

#include "engine/Session.h"

#include "qwen/Support/Error.h"

#include <algorithm>

using namespace qwen;

/// Throws Error if the model of `engine` does not give logits.
static Engine &withLogits(Engine &engine) {
  const ModelInfo &model = engine.manifest().model;
  model.output.requireLogits(model.name);
  return engine;
}

Session::Session(Engine &sessionEngine, const SamplerOptions &options,
                 std::span<const int32_t> ends, int64_t snapshotEvery)
    : engine(withLogits(sessionEngine)),
      sampler(options, engine.manifest().model.vocabSize,
              engine.manifest().model.tokenizerVocab, 0, ends),
      sequence(engine.state().open()) {
  if (engine.state().maxSnapshots())
    cache.emplace(engine.state(), snapshotEvery);
  // The last drawn token never runs.
  ids.reserve(static_cast<size_t>(engine.manifest().model.context) + 1);
  batch.reserve(static_cast<size_t>(engine.manifest().forward().limits.tokens));
}

// Only memory can lack.
// NOLINTNEXTLINE(bugprone-exception-escape)
Session::~Session() { engine.state().close(sequence); }

void Session::keepPrefix(std::span<const int32_t> tokens, int64_t snapshotAt) {
  SequenceState &state = engine.state();
  if (cache) {
    cache->snapshot(sequence, ids, prefix);
    state.truncate(sequence, 0);
    prefix = {.snapshotAt = snapshotAt};
    const PrefixCache::Hit hit = cache->find(tokens, prefix);
    cache->share(sequence, tokens, prefix, hit);
    cache->resume(sequence, hit);
    return;
  }
  const auto differ = std::ranges::mismatch(ids, tokens);
  // The last token runs again even if it has run: its logits are gone.
  const int64_t same = std::min<int64_t>(
      differ.in1 - ids.begin(), static_cast<int64_t>(tokens.size()) - 1);
  state.truncate(sequence, state.reachable(sequence, same));
}

void Session::setTokens(std::span<const int32_t> tokens, int64_t snapshotAt) {
  const ModelInfo &model = engine.manifest().model;
  if (tokens.empty())
    throw Error("the prompt is empty: at least one token is needed");
  if (static_cast<int64_t>(tokens.size()) > model.context)
    throw Error("the prompt has " + std::to_string(tokens.size()) +
                " tokens when " + model.describeContext());
  for (int32_t id : tokens)
    if (id < 0 || id >= model.vocabSize)
      throw Error("token id " + std::to_string(id) +
                  " is not in the model's vocabulary of " +
                  std::to_string(model.vocabSize));
  keepPrefix(tokens, snapshotAt);
  ids.assign(tokens.begin(), tokens.end());
  sampler.reset();
  for (int32_t id : ids)
    sampler.acceptPrompt(id);
}

std::optional<int32_t> Session::next(const std::function<bool()> &stop) {
  const auto total = static_cast<int64_t>(ids.size());
  if (total > engine.manifest().model.context)
    return std::nullopt;
  int32_t drawn = 0;
  const Engine::RowFn draw = [&](size_t, std::span<float> logits) {
    drawn = sampler.sample(logits, ids.size());
  };
  for (int64_t at = engine.state().length(sequence); at < total;) {
    if (stop && stop())
      return std::nullopt;
    int64_t end =
        std::min(total, at + engine.manifest().forward().limits.tokens);
    if (cache)
      end = std::min(end, at + cache->untilSnapshot(prefix, at));
    batch.clear();
    for (; at < end; ++at)
      batch.push_back(
          {ids[static_cast<size_t>(at)], sequence, at, at + 1 == total});
    engine.forward(batch, draw);
    if (cache)
      cache->keep(sequence, ids, prefix);
  }
  ids.push_back(drawn);
  sampler.acceptDrawn(drawn);
  return drawn;
}
