//===- Xtc.cpp - Excludes top choices -------------------------------------===//
//
// XTC of p-e-w, https://github.com/oobabooga/text-generation-webui/pull/6335,
// as llama.cpp has it.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

using namespace qwen;

/// If the coin says so, removes all tokens of at least the threshold but the
/// least likely of them.
static void cutXtc(const SamplerOptions &options, Candidates &candidates,
                   const CutInputs &inputs) {
  if (inputs.coin >= options.xtcProbability)
    return;
  const double least = options.xtcThreshold * candidates.mass();
  size_t likely = 0;
  while (likely < candidates.size() && candidates.weight(likely) >= least)
    ++likely;
  if (likely >= 2)
    candidates.removeFirst(likely - 1);
}

const TokenCut cut::Xtc = {[](const SamplerOptions &options) {
                             // Two tokens cannot both have more than a half.
                             return options.xtcProbability > 0 &&
                                    options.xtcThreshold <= 0.5;
                           },
                           cutXtc};
