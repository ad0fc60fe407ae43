//===- EtaCutoff.cpp - Tokens above a probability that entropy lowers -----===//
//
// Hewitt et al., "Truncation Sampling as Language Model Desmoothing", 2022.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"

#include <cmath>

using namespace qwen;

static void cutEtaCutoff(const SamplerOptions &options, Candidates &candidates,
                         const CutInputs &) {
  const auto [mass, entropy] = candidates.distribution();
  const double epsilon = options.etaCutoff;
  const double eta =
      std::min(epsilon, std::sqrt(epsilon) * numerics::exp(-entropy));
  candidates.keepAbove(eta * mass);
}

const TokenCut cut::EtaCutoff = {
    [](const SamplerOptions &options) { return options.etaCutoff > 0; },
    cutEtaCutoff};
