//===- TypicalP.cpp - Tokens of about the expected information ------------===//
//
// Meister et al., "Locally Typical Sampling", 2022.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/Fixed.h"
#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/Math.h"

#include <array>
#include <cmath>
#include <limits>
#include <numeric>

using namespace qwen;

/// Buckets have tokens by how far their logit is below the greatest. The last
/// has all that are further down.
static constexpr size_t kBuckets = 4096;
static constexpr double kBucketsPerNat = 64;

static size_t bucketOf(float below) {
  return static_cast<size_t>(
      std::min(-below * static_cast<float>(kBucketsPerNat), kBuckets - 1.0f));
}

namespace {
/// Buckets of which a part may be kept, and among them those that are kept
/// whole: [begin, end) each.
struct Ranges {
  size_t begin, end;
  size_t wholeBegin, wholeEnd;
};

/// How far the information of tokens, -log p, is from its mean, the entropy.
class Shifts {
public:
  Shifts(const Candidates &candidates)
      : greatest(candidates.greatest()),
        distribution(candidates.distribution([this](float below, double share) {
          sums[bucketOf(below)] += share;
        })),
        middle(numerics::log(distribution.mass) - distribution.entropy) {}

  /// In double, so that only equal logits have one shift.
  double of(CandidateKey key) const {
    const double below =
        key.logit() == greatest ? 0 : double{key.logit()} - greatest;
    return std::fabs(middle - below);
  }
  float belowOf(CandidateKey key) const {
    return key.logit() == greatest ? 0 : key.logit() - greatest;
  }
  double mass() const { return distribution.mass; }
  double sumOf(size_t begin, size_t end) const {
    return std::accumulate(sums.begin() + static_cast<std::ptrdiff_t>(begin),
                           sums.begin() + static_cast<std::ptrdiff_t>(end),
                           0.0);
  }
  Ranges rangesOf(double enough) const;

private:
  const float greatest;
  /// The weights of each bucket.
  std::array<double, kBuckets> sums = {};
  const Distribution distribution;
  const double middle;
};
} // namespace

/// Takes buckets in the order of their least shifts until they have `enough`.
/// The shift of the last kept token is at least that of the last bucket, and
/// at most the width of a bucket more.
Ranges Shifts::rangesOf(double enough) const {
  // A shift of a bucket's border may be off by the rounding of `below`.
  constexpr double kRounding = 1e-3;
  const double center = -middle * kBucketsPerNat;
  size_t begin = std::min(static_cast<size_t>(center), kBuckets - 1);
  size_t end = begin + 1;
  double sum = sums[begin], last = 0;
  while (sum < enough && (begin > 0 || end < kBuckets)) {
    const double before = begin > 0 ? center - static_cast<double>(begin)
                                    : std::numeric_limits<double>::infinity();
    const double behind = end < kBuckets
                              ? static_cast<double>(end) - center
                              : std::numeric_limits<double>::infinity();
    last = std::min(before, behind);
    sum += before <= behind ? sums[--begin] : sums[end++];
  }
  const double most = last + 1 + kRounding, least = last - kRounding;
  const auto placeOf = [](double bucket) {
    return static_cast<size_t>(
        std::clamp(bucket, 0.0, static_cast<double>(kBuckets)));
  };
  Ranges result = {
      placeOf(std::floor(center - most)), placeOf(std::ceil(center + most)),
      placeOf(std::ceil(center - least)), placeOf(std::floor(center + least))};
  // The last bucket has no end.
  if (result.end >= kBuckets - 1)
    result.end = kBuckets;
  result.wholeEnd = std::min(result.wholeEnd, kBuckets - 1);
  result.wholeBegin = std::min(result.wholeBegin, result.wholeEnd);
  return result;
}

/// Keeps the first tokens, in the order of their shifts, that together have the
/// probability. Sums are of integers, so those of buckets tell which ones are
/// kept whole; only tokens around the last one are ordered.
static void cutTypicalP(const SamplerOptions &options, Candidates &candidates,
                        const CutInputs &) {
  const Shifts shifts(candidates);
  const double enough = options.typicalP * shifts.mass() * kFixedOne;
  const Ranges ranges = shifts.rangesOf(enough);
  candidates.keepIf([&](CandidateKey key) {
    const size_t bucket = bucketOf(shifts.belowOf(key));
    return bucket >= ranges.begin && bucket < ranges.end;
  });
  const auto isWhole = [&](CandidateKey key) {
    const size_t bucket = bucketOf(shifts.belowOf(key));
    return bucket >= ranges.wholeBegin && bucket < ranges.wholeEnd;
  };
  const std::span<const CandidateKey> last =
      candidates.sorted([&](CandidateKey key) { return !isWhole(key); },
                        [&](CandidateKey a, CandidateKey b) {
                          return shifts.of(a) < shifts.of(b);
                        });
  if (last.empty())
    return;
  double sum = shifts.sumOf(ranges.wholeBegin, ranges.wholeEnd);
  size_t count = 0;
  do
    sum += toFixed(numerics::exp(shifts.belowOf(last[count++])));
  while (count < last.size() && sum < enough);
  // Tokens with the shift of the last one stay.
  const double most = shifts.of(last[count - 1]);
  candidates.keepIf(
      [&](CandidateKey key) { return isWhole(key) || shifts.of(key) <= most; });
}

const TokenCut cut::TypicalP = {
    [](const SamplerOptions &options) { return options.typicalP < 1; },
    cutTypicalP};
