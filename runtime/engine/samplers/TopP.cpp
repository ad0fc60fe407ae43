//===- TopP.cpp - The most likely tokens with a probability together ------===//
//
// Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include <optional>

using namespace qwen;

/// The number of tokens to keep; nothing if the bounds of the sum of all
/// weights leave it open.
static std::optional<size_t> countKept(double topP, Candidates &candidates,
                                       const Bounds &total) {
  double head = 0;
  size_t kept = 0;
  while (kept < candidates.size() && head < topP * total.most) {
    if (head >= topP * total.least)
      return std::nullopt;
    head += candidates.weight(kept++);
  }
  return kept;
}

static void cutTopP(const SamplerOptions &options, Candidates &candidates,
                    const CutInputs &) {
  std::optional<size_t> kept =
      countKept(options.topP, candidates, candidates.total());
  if (!kept)
    kept = countKept(options.topP, candidates, candidates.exactTotal());
  candidates.keepFirst(*kept);
}

const TokenCut cut::TopP = {
    [](const SamplerOptions &options) { return options.topP < 1; }, cutTopP};
