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
#include <functional>
#include <limits>
#include <numeric>

using namespace qwen;

/// Buckets have tokens by how far their logit is below the greatest. The last
/// has all that are further down; their weights are 0 in sums.
static constexpr size_t kBuckets = 2048;
static constexpr double kBucketsPerNat = Buckets::kPerNat;

static size_t bucketOf(float below) {
  return static_cast<size_t>(
      std::min(Buckets::placeOf(below), kBuckets - 1.0f));
}

namespace {
/// The buckets that are kept in part or whole, and among them the whole ones.
struct Ranges {
  Buckets some, whole;
};

/// How far the information of tokens, -log p, is from its mean, the entropy.
class Shifts {
public:
  Shifts(const Candidates &candidates)
      : greatest(candidates.greatest()),
        distribution(candidates.distribution([this](const WeightBlock &block) {
          for (size_t i = 0; i < block.count; ++i)
            sums[bucketOf(block.belows[i])] += toFixed(block.weights[i]);
        })),
        middle(numerics::log(distribution.mass) - distribution.entropy) {}

  /// In double, so that only equal logits have one shift.
  double of(CandidateKey key) const { return std::fabs(signedOf(key)); }
  float belowOf(CandidateKey key) const {
    return key.logit() == greatest ? 0 : key.logit() - greatest;
  }
  /// Number of keys that are more likely than one without a shift.
  size_t countAbove(std::span<const CandidateKey> keys) const {
    return static_cast<size_t>(std::ranges::count_if(
        keys, [&](CandidateKey key) { return signedOf(key) < 0; }));
  }
  double mass() const { return distribution.mass; }
  double sumOf(const Buckets &of) const {
    return std::accumulate(sums.begin() + static_cast<std::ptrdiff_t>(of.begin),
                           sums.begin() + static_cast<std::ptrdiff_t>(of.end),
                           0.0);
  }
  Ranges rangesOf(double enough) const;

private:
  double signedOf(CandidateKey key) const {
    return middle -
           (key.logit() == greatest ? 0 : double{key.logit()} - greatest);
  }

  const float greatest;
  /// The weights of each bucket.
  std::array<double, kBuckets> sums = {};
  const Distribution distribution;
  const double middle;
};
} // namespace

/// Takes buckets in the order of their least shifts until they have `enough`.
/// The shift of the last kept token is at least the last bucket's, and at most
/// the width of a bucket more.
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
      {placeOf(std::floor(center - most)), placeOf(std::ceil(center + most))},
      {placeOf(std::ceil(center - least)),
       placeOf(std::floor(center + least))}};
  // The last bucket has no end.
  if (result.some.end >= kBuckets - 1)
    result.some.end = Buckets::kNoEnd;
  result.whole.end = std::min(result.whole.end, kBuckets - 1);
  result.whole.begin = std::min(result.whole.begin, result.whole.end);
  return result;
}

/// Keeps the first tokens, in the order of their shifts, that together have the
/// probability. Integers are summed, so the sums of buckets tell which ones are
/// kept whole; only tokens around the last one are ordered.
static void cutTypicalP(const SamplerOptions &options, Candidates &candidates,
                        const CutInputs &) {
  const Shifts shifts(candidates);
  const double enough = options.typicalP * shifts.mass() * kFixedOne;
  const Ranges ranges = shifts.rangesOf(enough);
  candidates.keepIf(
      [&](CandidateKey key) { return ranges.some.has(shifts.belowOf(key)); });
  const auto isWhole = [&](CandidateKey key) {
    return ranges.whole.has(shifts.belowOf(key));
  };
  const std::span<const CandidateKey> last = candidates.sorted(
      [&](CandidateKey key) { return !isWhole(key); }, std::less());
  if (last.empty())
    return;
  double sum = shifts.sumOf(ranges.whole), most = 0;
  // The next of those with more and with less than the expected logit.
  size_t behind = shifts.countAbove(last), before = behind;
  do {
    const bool isAbove =
        behind == last.size() ||
        (before > 0 && shifts.of(last[before - 1]) <= shifts.of(last[behind]));
    const CandidateKey key = last[isAbove ? --before : behind++];
    most = shifts.of(key);
    sum += toFixed(numerics::exp(shifts.belowOf(key)));
  } while (behind - before < last.size() && sum < enough);
  // Tokens with the shift of the last one stay.
  candidates.keepIf(
      [&](CandidateKey key) { return isWhole(key) || shifts.of(key) <= most; });
}

const TokenCut cut::TypicalP = {
    [](const SamplerOptions &options) { return options.typicalP < 1; },
    cutTypicalP};
