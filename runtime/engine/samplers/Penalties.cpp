//===- Penalties.cpp - Lower logits of tokens already seen ----------------===//
//
// Keskar et al., "CTRL: A Conditional Transformer Language Model for
// Controllable Generation", 2019, for prompt and answer; OpenAI's penalties of
// frequency and presence, for the answer alone.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/LogitProcessor.h"

using namespace qwen;

static bool countsAnswer(const SamplerOptions &options) {
  return options.frequencyPenalty != 0 || options.presencePenalty != 0;
}

static bool penalizes(const SamplerOptions &options) {
  return options.repetitionPenalty != 1 || countsAnswer(options);
}

static void startPenalties(const SamplerOptions &options, SamplerState &state,
                           ProcessorBits) {
  if (countsAnswer(options))
    state.counts.assign(state.marks.vocab(), 0);
}

static void acceptSeen(const SamplerOptions &options, SamplerState &state,
                       ProcessorBits bit, int32_t id, bool isDrawn) {
  const bool isCounted = isDrawn && countsAnswer(options);
  if (isCounted)
    ++state.counts[static_cast<size_t>(id)];
  if (isCounted || options.repetitionPenalty != 1)
    state.marks.add(id, bit);
}

static bool penalize(const SamplerOptions &options, const SamplerState &state,
                     size_t id, float &logit) {
  logit = logit > 0 ? logit / options.repetitionPenalty
                    : logit * options.repetitionPenalty;
  if (!state.counts.empty() && state.counts[id]) {
    logit -= static_cast<float>(state.counts[id]) * options.frequencyPenalty;
    logit -= options.presencePenalty;
  }
  return true;
}

const LogitProcessor logits::Penalties = {.isOn = penalizes,
                                          .process = penalize,
                                          .start = startPenalties,
                                          .accept = acceptSeen};
