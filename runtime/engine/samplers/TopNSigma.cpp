//===- TopNSigma.cpp - Tokens within some deviations of the best ----------===//
//
// Tang et al., "Top-n-sigma: Not All Logits Are You Need", 2024.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include <cmath>

using namespace qwen;

/// Keeps logits of at least the greatest less n times the deviation of all. The
/// sums run in the order of ids.
static void cutTopNSigma(const SamplerOptions &options, Candidates &candidates,
                         const CutInputs &) {
  candidates.orderById();
  const auto count = static_cast<double>(candidates.size());
  double sum = 0, squares = 0;
  for (CandidateKey key : candidates.all())
    sum += key.logit();
  const double mean = sum / count;
  for (CandidateKey key : candidates.all())
    squares += (key.logit() - mean) * (key.logit() - mean);
  const double least =
      candidates.greatest() - options.topNSigma * std::sqrt(squares / count);
  // Infinite logits have no deviation.
  if (!std::isnan(least))
    candidates.keepIf([&](CandidateKey key) { return key.logit() >= least; });
}

const TokenCut cut::TopNSigma = {
    [](const SamplerOptions &options) { return options.topNSigma > 0; },
    cutTopNSigma};
