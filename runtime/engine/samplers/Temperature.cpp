//===- Temperature.cpp - Flatter or steeper logits ------------------------===//
//
// The temperature may follow the entropy: llama.cpp's dynamic temperature,
// after https://github.com/LostRuins/koboldcpp/pull/516.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"

#include <cmath>

using namespace qwen;

/// Keeps the first token alone where its quotient is past all floats, as all
/// others of the same sign may be.
static void divide(float temperature, Candidates &candidates) {
  if (std::isfinite(candidates.greatest() / temperature))
    candidates.divide(temperature);
  else
    candidates.keepFirst(1);
}

/// The temperature grows with the entropy, which is least with one token and
/// greatest with equal ones.
static void applyDynamic(const SamplerOptions &options,
                         Candidates &candidates) {
  const double least =
      std::max(0.0, double{options.temperature} - options.temperatureRange);
  const double most = double{options.temperature} + options.temperatureRange;
  const auto count = static_cast<double>(candidates.size());
  // Sums of one token are exact, and other sums may be off by their last bits.
  const double share =
      count == 1 ? 0 : candidates.distribution().entropy / numerics::log(count);
  const double power = share <= 0 ? 0
                                  : numerics::pow(std::min(share, 1.0),
                                                  options.temperatureExponent);
  const auto temperature = static_cast<float>(least + (most - least) * power);
  divide(temperature, candidates);
}

static void applyTemperature(const SamplerOptions &options,
                             Candidates &candidates, const CutInputs &) {
  if (options.temperatureRange > 0)
    applyDynamic(options, candidates);
  else
    divide(options.temperature, candidates);
}

const TokenCut cut::Temperature = {[](const SamplerOptions &options) {
                                     return options.temperature != 1 ||
                                            options.temperatureRange > 0;
                                   },
                                   applyTemperature};
