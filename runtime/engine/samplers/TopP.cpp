//===- TopP.cpp - The most likely tokens with a probability together ------===//
//
// Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include <functional>

using namespace qwen;

static void cutTopP(const SamplerOptions &options, Candidates &candidates,
                    const CutInputs &) {
  candidates.keepUpTo(candidates.find(options.topP, std::greater_equal()));
}

const TokenCut cut::TopP = {
    [](const SamplerOptions &options) { return options.topP < 1; }, cutTopP};
