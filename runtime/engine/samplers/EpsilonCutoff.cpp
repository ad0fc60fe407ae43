//===- EpsilonCutoff.cpp - Tokens above a probability ---------------------===//
//
// Hewitt et al., "Truncation Sampling as Language Model Desmoothing", 2022.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

using namespace qwen;

static void cutEpsilonCutoff(const SamplerOptions &options,
                             Candidates &candidates, const CutInputs &) {
  candidates.keepAbove(options.epsilonCutoff * candidates.mass());
}

const TokenCut cut::EpsilonCutoff = {
    [](const SamplerOptions &options) { return options.epsilonCutoff > 0; },
    cutEpsilonCutoff};
