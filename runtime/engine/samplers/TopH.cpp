//===- TopH.cpp - Tokens that have a part of the entropy ------------------===//
//
// Potraghloo et al., "Top-H Decoding", 2025, as transformers has it.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"

using namespace qwen;

/// Keeps the most likely tokens whose entropies are together at most h times
/// the entropy of the 100 most likely ones, whose probabilities have the sum 1.
static void cutTopH(const SamplerOptions &options, Candidates &candidates,
                    const CutInputs &) {
  constexpr size_t kMost = 100;
  const size_t most = std::min(candidates.size(), kMost);
  double total = 0;
  for (size_t i = 0; i < most; ++i)
    total += candidates.weight(i);
  const double logTotal = numerics::log(total);
  const auto entropyOf = [&](size_t i) {
    const double weight = candidates.weight(i);
    if (weight == 0)
      return 0.0;
    const double below = candidates.at(i).logit() - candidates.greatest();
    return weight / total * (logTotal - below);
  };
  double entropy = 0;
  for (size_t i = 0; i < most; ++i)
    entropy += entropyOf(i);
  double sum = entropyOf(0);
  size_t kept = 1;
  while (kept < most && (sum += entropyOf(kept)) <= options.topH * entropy)
    ++kept;
  candidates.keepFirst(kept);
}

const TokenCut cut::TopH = {
    [](const SamplerOptions &options) { return options.topH < 1; }, cutTopH};
