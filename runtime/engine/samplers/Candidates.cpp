//===- Candidates.cpp - The tokens that may be drawn ----------------------===//

#include "engine/samplers/Candidates.h"

#include <cmath>
#include <functional>
#include <iterator>

using namespace qwen;

void Candidates::reserve(size_t count) {
  keys.reserve(count);
  weights.reserve(count);
  firsts.reserve(count / kBlock + 1);
}

std::vector<CandidateKey> &Candidates::refill() {
  keys.clear();
  return keys;
}

/// The first of some keys in order; there is at least one.
static CandidateKey firstOf(std::span<const CandidateKey> keys) {
  return numerics::inWideVectors([&] {
    CandidateKey least = keys[0];
    for (CandidateKey key : keys)
      least = std::min(least, key);
    return least;
  });
}

void Candidates::begin() { beginAt(firstOf(keys).logit()); }

void Candidates::beginAt(float greatest) {
  weights.clear();
  first = greatest;
}

void Candidates::fill(WeightBlock &block, size_t begin) const {
  block.begin = begin;
  block.count = std::min(WeightBlock::kSize, keys.size() - begin);
  const auto from = std::span(keys).subspan(begin, block.count);
  numerics::inWideVectors([&] {
    std::ranges::transform(from, block.belows.data(),
                           [&](CandidateKey key) { return belowOf(key); });
  });
  std::fill(block.belows.begin() + block.count, block.belows.end(), -INFINITY);
  block.weights = block.belows;
  numerics::exp(block.weights);
}

void Candidates::order(size_t count) {
  const size_t begin = weights.size();
  auto next = std::span(keys).subspan(begin);
  // As many blocks have a first key up to `last`.
  const size_t wanted = std::max<size_t>(count - begin, 128);
  if (next.size() > kFew && wanted < next.size() / kBlock) {
    firsts.clear();
    for (size_t i = 0; i < next.size(); i += kBlock)
      firsts.push_back(
          firstOf(next.subspan(i, std::min(kBlock, next.size() - i))));
    const auto nth = firsts.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
    std::ranges::nth_element(firsts, nth);
    next = next.first(moveToFront(
        next, [last = *nth](CandidateKey key) { return key <= last; }));
  }
  std::ranges::sort(next);
  std::ranges::transform(next, std::back_inserter(weights),
                         [&](CandidateKey key) { return belowOf(key); });
  numerics::exp(std::span(weights).subspan(begin));
}

std::optional<CandidateKey> Candidates::findByBuckets(double part) {
  // Buckets of a window, and one for what is not in it.
  constexpr size_t kWindow = 512, kWindows = 4;
  std::array<double, kWindow + 1> sums;
  double before = 0;
  for (size_t begin = 0; begin < kWindows * kWindow; begin += kWindow) {
    const Buckets window = {begin, begin + kWindow};
    LaneSums all;
    sums = {};
    visitBlocks([&](const WeightBlock &block) {
      all.add([&](size_t i) { return double{block.weights[i]}; });
      const auto isIn = [window](float below) { return window.has(below); };
      // Most blocks have none.
      if (numerics::inWideVectors(
              [&] { return std::ranges::count_if(block.belows, isIn); }))
        for (size_t i = 0; i < block.count; ++i) {
          const float place =
              Buckets::placeOf(block.belows[i]) - static_cast<float>(begin);
          const bool isHere = place >= 0 && place < kWindow;
          sums[isHere ? static_cast<size_t>(place) : kWindow] +=
              block.weights[i];
        }
    });
    // A sum of n numbers in any order has an error below n * 2^-53 of the sum.
    const double total = all.sum();
    const double error = total * static_cast<double>(keys.size()) * 0x1p-51;
    const double least = part * (total - error) - error;
    const double most = part * (total + error) + error;
    for (size_t bucket = 0; bucket < kWindow; ++bucket) {
      before += sums[bucket];
      if (before < least)
        continue;
      double sum = before - sums[bucket];
      const Buckets own = {begin + bucket, begin + bucket + 1};
      for (CandidateKey key :
           sorted([&](CandidateKey key) { return own.has(belowOf(key)); },
                  std::less())) {
        sum += numerics::exp(belowOf(key));
        if (sum > most)
          return key;
        if (sum >= least)
          return std::nullopt;
      }
    }
  }
  return std::nullopt;
}

double Candidates::mass() const {
  LaneSums masses;
  visitBlocks([&](const WeightBlock &block) {
    masses.add([&](size_t i) { return toFixed(block.weights[i]); });
  });
  return masses.sum() / kFixedOne;
}

void Candidates::keepAbove(double least) {
  least = std::min(least, 1.0);
  size_t kept = 0;
  visitBlocks([&](const WeightBlock &block) {
    const auto isKept = [least](float weight) { return weight >= least; };
    // Most blocks have none.
    if (numerics::inWideVectors(
            [&] { return std::ranges::count_if(block.weights, isKept); }))
      for (size_t i = 0; i < block.count; ++i) {
        keys[kept] = keys[block.begin + i];
        kept += isKept(block.weights[i]);
      }
  });
  keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(kept), keys.end());
  beginAt(first);
}

void Candidates::keepUpTo(CandidateKey last) {
  keys.resize(
      moveToFront(keys, [last](CandidateKey key) { return key <= last; }));
  beginAt(first);
}

void Candidates::keepFirst(size_t count) {
  weight(count - 1);
  keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end());
  weights.resize(count);
}

void Candidates::removeBefore(CandidateKey next) {
  const size_t removed =
      moveToFront(keys, [next](CandidateKey key) { return key < next; });
  for (size_t i = removed; i-- > 0;) {
    keys[i] = keys.back();
    keys.pop_back();
  }
  beginAt(next.logit());
}

void Candidates::divide(float temperature) {
  numerics::inWideVectors([&] {
    for (CandidateKey &key : keys)
      key = CandidateKey(key.logit() / temperature,
                         static_cast<size_t>(key.id()));
  });
  // Quotients keep the order of logits.
  beginAt(first / temperature);
}

void Candidates::orderById() {
  const auto idOf = [](CandidateKey key) { return key.id(); };
  if (!std::ranges::is_sorted(keys, {}, idOf))
    std::ranges::sort(keys, {}, idOf);
  begin();
}
