//===- Xtc.cpp - Excludes top choices -------------------------------------===//
//
// XTC of p-e-w, https://github.com/oobabooga/text-generation-webui/pull/6335,
// as llama.cpp has it.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"

#include <functional>
#include <limits>

using namespace qwen;

/// If the coin says so, removes all tokens of at least the threshold but the
/// least likely of them.
static void cutXtc(const SamplerOptions &options, Candidates &candidates,
                   const CutInputs &inputs) {
  if (inputs.coin >= options.xtcProbability)
    return;
  const double least = options.xtcThreshold * candidates.mass();
  // Not even the most likely token, whose weight is 1, has the threshold.
  if (least > 1)
    return;
  // The rounding of logs and weights is less than this.
  constexpr double kMargin = 1e-3;
  const float reach = least < std::numeric_limits<double>::min()
                          ? -std::numeric_limits<float>::infinity()
                          : static_cast<float>(numerics::log(least) - kMargin);
  std::span<const CandidateKey> likely = candidates.sorted(
      [&](CandidateKey key) { return candidates.belowOf(key) >= reach; },
      std::less());
  while (numerics::exp(candidates.belowOf(likely.back())) < least)
    likely = likely.first(likely.size() - 1);
  if (likely.size() > 1)
    candidates.removeBefore(likely.back());
}

const TokenCut cut::Xtc = {[](const SamplerOptions &options) {
                             // Two tokens cannot both have more than a half.
                             return options.xtcProbability > 0 &&
                                    options.xtcThreshold <= 0.5;
                           },
                           cutXtc};
