//===- ExponentialDecay.cpp - Ends that become more likely ----------------===//
//
// transformers' exponential_decay_length_penalty.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/LogitProcessor.h"

#include "qwen/Numerics/Doubles.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;

static void startDecay(const SamplerOptions &, SamplerState &state,
                       ProcessorBits bit) {
  for (int32_t id : state.ends)
    state.marks.add(id, bit);
}

static bool decay(const SamplerOptions &options, const SamplerState &state,
                  size_t, float &logit) {
  constexpr double kMost = std::numeric_limits<float>::max();
  const int64_t past = state.drawn - options.decayStart;
  if (past > 0) {
    const double factor =
        numerics::pow(options.decayFactor, static_cast<double>(past));
    logit += static_cast<float>(
        std::min(std::fabs(double{logit}) * (factor - 1), kMost));
  }
  return true;
}

const LogitProcessor logits::ExponentialDecay = {
    .isOn =
        [](const SamplerOptions &options) { return options.decayFactor != 1; },
    .process = decay,
    .start = startDecay};
