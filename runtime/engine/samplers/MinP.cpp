//===- MinP.cpp - Tokens with a part of the highest probability -----------===//
//
// Nguyen et al., "Turning Up the Heat: Min-p Sampling", 2024.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

using namespace qwen;

static void cutMinP(const SamplerOptions &options, Candidates &candidates,
                    const CutInputs &) {
  candidates.keepAbove(options.minP);
}

const TokenCut cut::MinP = {
    [](const SamplerOptions &options) { return options.minP > 0; }, cutMinP};
