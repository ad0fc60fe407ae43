//===- TopK.cpp - The most likely tokens ----------------------------------===//
//
// Fan et al., "Hierarchical Neural Story Generation", 2018.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

using namespace qwen;

static void cutTopK(const SamplerOptions &options, Candidates &candidates,
                    const CutInputs &) {
  const auto most = static_cast<size_t>(options.topK);
  if (candidates.size() > most)
    candidates.keepFirst(most);
}

const TokenCut cut::TopK = {
    [](const SamplerOptions &options) { return options.topK > 0; }, cutTopK};
