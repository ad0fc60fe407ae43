//===- MinP.cpp - Tokens with a part of the highest probability -----------===//
//
// Nguyen et al., "Turning Up the Heat: Min-p Sampling", 2024.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

using namespace qwen;

static void cutMinP(const SamplerOptions &options, Candidates &candidates,
                    const CutInputs &) {
  // Weights descend, but for their last bits. The first one is 1.
  size_t kept = 0;
  while (kept < candidates.size() &&
         candidates.weight(kept) >= options.minP / 2)
    ++kept;
  while (candidates.weight(kept - 1) < options.minP)
    --kept;
  candidates.keepFirst(kept);
}

const TokenCut cut::MinP = {
    [](const SamplerOptions &options) { return options.minP > 0; }, cutMinP};
