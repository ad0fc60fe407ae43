//===- TypicalP.cpp - Tokens of about the expected information ------------===//
//
// Meister et al., "Locally Typical Sampling", 2022.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/Fixed.h"
#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"

#include <array>
#include <cmath>

using namespace qwen;

namespace {
/// How far the information of tokens, -log p, is from its mean, the entropy.
class Shifts {
public:
  Shifts(const Candidates &candidates)
      : candidates(candidates), distribution(candidates.distribution()),
        middle(numerics::log(distribution.mass) - distribution.entropy) {}

  /// In double, so that only equal logits have one shift.
  double of(CandidateKey key) const {
    const double below = key.logit() == candidates.greatest()
                             ? 0
                             : double{key.logit()} - candidates.greatest();
    return std::fabs(middle - below);
  }
  /// Tokens of a smaller shift have a smaller bucket or the same.
  size_t bucketOf(CandidateKey key) const {
    constexpr double kBucketsPerNat = 64;
    return static_cast<size_t>(
        std::min(of(key) * kBucketsPerNat, kBuckets - 1.0));
  }
  double mass() const { return distribution.mass; }

  static constexpr size_t kBuckets = 4096;

private:
  const Candidates &candidates;
  const Distribution distribution;
  const double middle;
};
} // namespace

/// Keeps the first tokens, in the order of their shifts, that together have the
/// probability. Sums are of integers, so those of buckets tell in which one the
/// last token lies; only that one is ordered.
static void cutTypicalP(const SamplerOptions &options, Candidates &candidates,
                        const CutInputs &) {
  const Shifts shifts(candidates);
  const double enough = options.typicalP * shifts.mass() * kFixedOne;
  std::array<double, Shifts::kBuckets> sums = {};
  candidates.visitWeights([&](size_t i, float, float weight) {
    sums[shifts.bucketOf(candidates.all()[i])] += toFixed(weight);
  });
  size_t bucket = 0;
  double sum = 0;
  while (bucket + 1 < sums.size() && sum + sums[bucket] < enough)
    sum += sums[bucket++];
  const std::span<const CandidateKey> last = candidates.sorted(
      [&](CandidateKey key) { return shifts.bucketOf(key) == bucket; },
      [&](CandidateKey a, CandidateKey b) {
        return shifts.of(a) < shifts.of(b);
      });
  size_t count = 0;
  do
    sum += toFixed(candidates.weightOf(last[count++]));
  while (count < last.size() && sum < enough);
  // Tokens with the shift of the last one stay.
  const double most = shifts.of(last[count - 1]);
  candidates.keepIf([&](CandidateKey key) { return shifts.of(key) <= most; });
}

const TokenCut cut::TypicalP = {
    [](const SamplerOptions &options) { return options.typicalP < 1; },
    cutTypicalP};
