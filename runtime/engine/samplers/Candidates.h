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

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// A token with its logit, as a number: ascending keys have descending logits,
/// then ascending ids.
class CandidateKey {
public:
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

/// A number that lies between two others.
struct Bounds {
  double least, most;
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
  /// The weight of a candidate.
  float weightOf(CandidateKey key) const;
  /// The i-th candidate in order, and its weight.
  CandidateKey at(size_t i) {
    weight(i);
    return keys[i];
  }
  float weight(size_t i) {
    while (i >= weights.size())
      orderMore();
    return weights[i];
  }
  /// The sum of all weights in order, or bounds of it that need no order.
  Bounds total() const;
  /// The sum itself.
  Bounds exactTotal();
  Distribution distribution() const {
    return distribution([](float, double) {});
  }
  /// The same, and calls visit(below, weight) for all: how far the logit is
  /// below the greatest (at most 0), and the weight as an integer of Fixed.h.
  template <typename Visit> Distribution distribution(const Visit &visit) const;
  /// Its mass alone.
  double mass() const;

  /// Removes all but the first `count` in order, at least 1.
  void keepFirst(size_t count);
  /// Removes the first `count` in order, less than all.
  void removeFirst(size_t count);
  /// Removes those for which `isKept` is false. One must be left.
  template <typename Predicate> void keepIf(const Predicate &isKept) {
    std::erase_if(keys, [&](CandidateKey key) { return !isKept(key); });
    begin();
  }
  /// Removes those of a smaller weight than `least`, but not the first.
  void keepAbove(double least);
  /// Those for which `isIn` is true, in an order of their own, until the
  /// candidates change.
  template <typename Predicate, typename Less>
  std::span<const CandidateKey> sorted(const Predicate &isIn,
                                       const Less &isLess) {
    beginAt(first);
    const auto end = std::partition(keys.begin(), keys.end(), isIn);
    std::sort(keys.begin(), end, isLess);
    return {keys.begin(), end};
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

  /// Calls visit(i, below, weight) for all of all(), in turn: how far the logit
  /// is below the greatest (at most 0), and the weight.
  template <typename Visit> void visitWeights(const Visit &visit) const;

private:
  /// Sums of a part of the terms each, which do not wait for each other.
  static constexpr size_t kLanes = 4;
  using Lanes = std::array<double, kLanes>;
  static double sumOf(const Lanes &lanes) {
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }

  /// Takes the keys as they are, with the greatest of their logits.
  void beginAt(float greatest);
  /// Orders the next keys and computes their weights.
  void orderMore();

  /// The first weights.size() of them are in order, and come before all others.
  std::vector<CandidateKey> keys;
  std::vector<float> weights;
  float first = 0;
  /// The candidates in order have logits down to `first` less this.
  float reach = 0;
};

template <typename Visit>
void Candidates::visitWeights(const Visit &visit) const {
  constexpr size_t kBlock = 256;
  std::array<float, kBlock> belows, shares;
  for (size_t begin = 0; begin < keys.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, keys.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      const float logit = keys[begin + i].logit();
      // A tiny temperature makes logits infinite, and infinity - infinity is
      // NaN.
      belows[i] = logit == first ? 0 : logit - first;
      shares[i] = belows[i];
    }
    numerics::exp(std::span(shares).first(count));
    for (size_t i = 0; i < count; ++i)
      visit(begin + i, belows[i], shares[i]);
  }
}

template <typename Visit>
Distribution Candidates::distribution(const Visit &visit) const {
  Lanes masses = {}, dots = {};
  visitWeights([&](size_t i, float below, float weight) {
    const double share = toFixed(weight);
    masses[i % kLanes] += share;
    // A weight of 0 is that of a logit that may be infinitely far below.
    dots[i % kLanes] += weight == 0 ? 0 : toFixed(weight * below);
    visit(below, share);
  });
  const double mass = sumOf(masses);
  return {mass / kFixedOne,
          numerics::log(mass / kFixedOne) - sumOf(dots) / mass};
}

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLERS_CANDIDATES_H
