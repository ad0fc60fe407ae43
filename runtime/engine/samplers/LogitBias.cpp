//===- LogitBias.cpp - Numbers that are added to logits -------------------===//
//
// OpenAI's logit_bias.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/LogitProcessor.h"

using namespace qwen;

static void startLogitBias(const SamplerOptions &options, SamplerState &state,
                           ProcessorBits bit) {
  state.biases.assign(state.marks.vocab(), 0);
  for (const auto &[id, bias] : options.logitBias) {
    state.biases[static_cast<size_t>(id)] += bias;
    state.marks.add(id, bit);
  }
}

static bool addLogitBias(const SamplerOptions &, const SamplerState &state,
                         size_t id, float &logit) {
  logit += state.biases[id];
  return true;
}

const LogitProcessor logits::LogitBias = {
    .isOn =
        [](const SamplerOptions &options) {
          return !options.logitBias.empty();
        },
    .process = addLogitBias,
    .start = startLogitBias};
