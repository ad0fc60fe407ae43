//===- Candidates.h - The tokens that may be drawn --------------*- C++ -*-===//
//
// docs/numerics.md, "Sampling": tokens in the order of their logits,
// descending, then of their ids, ascending. The order is found only as far as
// somebody asks for it. A weight is exp(logit - greatest logit) in f32.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLERS_CANDIDATES_H
#define QWEN_RUNTIME_ENGINE_SAMPLERS_CANDIDATES_H

#include "engine/samplers/Fixed.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/WideVectors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace qwen {

/// A token with its logit, as a number: ascending keys have descending logits,
/// then ascending ids.
class CandidateKey {
public:
  CandidateKey() = default;
  CandidateKey(float logit, size_t id) {
    // Adding +0 makes -0 the same as +0.
    const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
    const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000;
    key = uint64_t{~ascending} << 32 | id;
  }

  float logit() const {
    const uint32_t ascending = ~static_cast<uint32_t>(key >> 32);
    return std::bit_cast<float>(ascending >> 31 ? ascending & 0x7FFFFFFF
                                                : ~ascending);
  }
  int32_t id() const {
    return static_cast<int32_t>(static_cast<uint32_t>(key));
  }
  auto operator<=>(const CandidateKey &) const = default;

private:
  uint64_t key;
};

/// Weights of some candidates that follow each other in all().
struct WeightBlock {
  static constexpr size_t kSize = 256;
  /// The first, and their number.
  size_t begin, count;
  /// How far each logit is below the greatest (at most 0), and its exp, the
  /// weight. Behind `count` -infinity and 0.
  std::array<float, kSize> belows, weights;
};

/// The candidates whose logits are from `begin` to less than `end` below the
/// greatest, in units of 1/64.
struct Buckets {
  static constexpr float kPerNat = 64;
  static constexpr size_t kNoEnd = SIZE_MAX;
  size_t begin, end;

  static float placeOf(float below) { return -below * kPerNat; }
  bool has(float below) const {
    // Without a branch there are vectors.
    const float place = placeOf(below);
    const bool isBefore = place < static_cast<float>(end);
    return (place >= static_cast<float>(begin)) & (isBefore | (end == kNoEnd));
  }
};

/// The distribution of the candidates.
struct Distribution {
  /// The sum of their weights, each rounded to a multiple of 2^-34, so that the
  /// order of the sum does not matter.
  double mass;
  /// -sum(p log p), from sums that are rounded likewise.
  double entropy;
};

/// Allocates nothing if `keys` has room (reserve).
class Candidates {
public:
  void reserve(size_t count);

  /// The candidates in any order, for who fills them. Calls `begin` then.
  std::vector<CandidateKey> &refill();
  /// Takes the keys as they are; there is at least one.
  void begin();

  size_t size() const { return keys.size(); }
  /// All candidates, in any order.
  const std::vector<CandidateKey> &all() const { return keys; }
  float greatest() const { return first; }
  /// How far the logit of a candidate is below the greatest: at most 0.
  float belowOf(CandidateKey key) const {
    const float logit = key.logit();
    // A tiny temperature makes logits infinite, and infinity - infinity is NaN.
    return logit == first ? 0 : logit - first;
  }
  /// The i-th candidate in order, and its weight.
  CandidateKey at(size_t i) {
    weight(i);
    return keys[i];
  }
  float weight(size_t i) {
    if (i >= weights.size())
      order(std::max(i + 1, 2 * weights.size()));
    return weights[i];
  }
  /// The first candidate in order with which the sum of weights, from the first
  /// on, reaches `part` of the sum of all in order (reaches(sum, enough)); the
  /// last one if none does. Orders only as many as bounds of the sums leave
  /// open.
  template <typename Reaches>
  CandidateKey find(double part, const Reaches &reaches);
  Distribution distribution() const {
    return distribution([](const WeightBlock &) {});
  }
  /// The same, and calls visit(block) for the blocks of all.
  template <typename Visit> Distribution distribution(const Visit &visit) const;
  /// Its mass alone.
  double mass() const;

  /// Removes all but the first `count` in order, at least 1.
  void keepFirst(size_t count);
  /// Removes those before `next`.
  void removeBefore(CandidateKey next);
  /// Removes those for which `isKept` is false. One must be left.
  template <typename Predicate> void keepIf(const Predicate &isKept) {
    keys.resize(moveToFront(keys, isKept));
    begin();
  }
  /// Removes those behind `last`.
  void keepUpTo(CandidateKey last);
  /// Removes candidates of a smaller weight than `least`, but not the first.
  void keepAbove(double least);
  /// Those for which `isIn` is true, in an order of their own, until the
  /// candidates change.
  template <typename Predicate, typename Less>
  std::span<const CandidateKey> sorted(const Predicate &isIn,
                                       const Less &isLess) {
    beginAt(first);
    const auto found = std::span(keys).first(moveToFront(keys, isIn));
    std::ranges::sort(found, isLess);
    return found;
  }
  /// Calls change(id, logit) for all, which sets the logit and returns whether
  /// to keep the token. Returns whether one is left.
  template <typename Change> bool change(const Change &change) {
    size_t kept = 0;
    for (CandidateKey key : keys) {
      float logit = key.logit();
      if (change(static_cast<size_t>(key.id()), logit))
        keys[kept++] = CandidateKey(logit, static_cast<size_t>(key.id()));
    }
    keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(kept), keys.end());
    if (kept > 0)
      begin();
    return kept > 0;
  }
  /// Divides all logits.
  void divide(float temperature);
  /// Brings the candidates into the order of their ids.
  void orderById();

private:
  /// Moves those for which `isIn` is true to the front. Returns their number.
  template <typename Predicate>
  static size_t moveToFront(std::span<CandidateKey> keys,
                            const Predicate &isIn);
  /// Calls visit(block) for the blocks of all(), in turn.
  template <typename Visit> void visitBlocks(const Visit &visit) const;
  void fill(WeightBlock &block, size_t begin) const;

  /// The result of `find`; nothing if sums leave it open, whose last bits
  /// depend on the order.
  std::optional<CandidateKey> findByBuckets(double part);

  /// Takes the keys as they are, with the greatest of their logits.
  void beginAt(float greatest);
  /// Brings at least the first `count` keys into order, with their weights; all
  /// if there are fewer.
  void order(size_t count);

  /// Number of keys that are compared together.
  static constexpr size_t kBlock = 64;
  /// Up to so many candidates, all of them are ordered.
  static constexpr size_t kFew = 1024;

  /// The first weights.size() of them are in order, and come before all others.
  std::vector<CandidateKey> keys;
  std::vector<float> weights;
  float first = 0;
  /// The first of each block of keys.
  std::vector<CandidateKey> firsts;
};

/// Sums of terms in lanes, which do not wait for each other.
class LaneSums {
public:
  /// Adds of(i) for each place of a block.
  template <typename Of> void add(const Of &of) {
    numerics::inWideVectors([&] {
      std::array<double, kLanes> sums = lanes;
      for (size_t i = 0; i < WeightBlock::kSize; i += kLanes)
        for (size_t lane = 0; lane < kLanes; ++lane)
          sums[lane] += of(i + lane);
      lanes = sums;
    });
  }
  double sum() const {
    return std::accumulate(lanes.begin(), lanes.end(), 0.0);
  }

private:
  static constexpr size_t kLanes = 16;
  std::array<double, kLanes> lanes = {};
};

template <typename Reaches>
CandidateKey Candidates::find(double part, const Reaches &reaches) {
  if (keys.size() > kFew)
    if (const std::optional<CandidateKey> found = findByBuckets(part))
      return *found;
  order(keys.size());
  const double enough =
      part * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = weights[0];
  size_t i = 0;
  while (!reaches(sum, enough) && i + 1 < keys.size())
    sum += weights[++i];
  return keys[i];
}

template <typename Predicate>
size_t Candidates::moveToFront(std::span<CandidateKey> keys,
                               const Predicate &isIn) {
  size_t moved = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kBlock) {
    const auto block =
        keys.subspan(begin, std::min(kBlock, keys.size() - begin));
    // Most blocks have none.
    const auto count = numerics::inWideVectors(
        [&] { return std::ranges::count_if(block, isIn); });
    if (count == 0)
      continue;
    for (CandidateKey &key : block) {
      const CandidateKey each = key;
      key = std::exchange(keys[moved], each);
      moved += isIn(each);
    }
  }
  return moved;
}

template <typename Visit>
void Candidates::visitBlocks(const Visit &visit) const {
  WeightBlock block;
  for (size_t begin = 0; begin < keys.size(); begin += WeightBlock::kSize) {
    fill(block, begin);
    visit(block);
  }
}

template <typename Visit>
Distribution Candidates::distribution(const Visit &visit) const {
  LaneSums masses, dots;
  visitBlocks([&](const WeightBlock &block) {
    masses.add([&](size_t i) { return toFixed(block.weights[i]); });
    dots.add([&](size_t i) {
      // A logit of weight 0 may be infinitely far below: its product is no
      // number. Without a branch there are vectors.
      const double dot = toFixed(block.weights[i] * block.belows[i]);
      return block.weights[i] == 0 ? 0 : dot;
    });
    visit(block);
  });
  const double mass = masses.sum();
  return {mass / kFixedOne,
          numerics::log(mass / kFixedOne) - dots.sum() / mass};
}

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLERS_CANDIDATES_H
