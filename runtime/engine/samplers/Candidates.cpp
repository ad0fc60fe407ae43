//===- Candidates.cpp - The tokens that may be drawn ----------------------===//

#include "engine/samplers/Candidates.h"

#include <iterator>

using namespace qwen;

void Candidates::reserve(size_t count) {
  keys.reserve(count);
  weights.reserve(count);
}

std::vector<CandidateKey> &Candidates::refill() {
  keys.clear();
  return keys;
}

void Candidates::begin() { beginAt(std::ranges::min_element(keys)->logit()); }

void Candidates::beginAt(float greatest) {
  weights.clear();
  reach = 0;
  first = greatest;
}

float Candidates::weightOf(CandidateKey key) const {
  const float logit = key.logit();
  // A tiny temperature makes logits infinite, and infinity - infinity is NaN.
  return numerics::exp(logit == first ? 0 : logit - first);
}

void Candidates::orderMore() {
  // Logits that are ordered together. Tokens further down than kMostReach have
  // hardly any weight.
  constexpr float kStep = 2, kMostReach = 20;
  constexpr std::ptrdiff_t kFew = 1024;
  const auto begin = keys.begin() + static_cast<std::ptrdiff_t>(weights.size());
  auto end = keys.end();
  reach += kStep;
  if (end - begin > kFew && reach < kMostReach)
    end = std::partition(begin, end, [&](CandidateKey key) {
      return key.logit() >= first - reach;
    });
  std::sort(begin, end);
  std::transform(begin, end, std::back_inserter(weights),
                 [&](CandidateKey key) { return weightOf(key); });
}

Bounds Candidates::total() const {
  double sum = 0;
  if (weights.size() == keys.size()) {
    for (float weight : weights)
      sum += weight;
    return {sum, sum};
  }
  Lanes sums = {};
  visitWeights(
      [&](size_t i, float, float weight) { sums[i % kLanes] += weight; });
  sum = sumOf(sums);
  // A sum of n numbers in any order has a relative error below n * 2^-53.
  const double error = sum * static_cast<double>(keys.size()) * 0x1p-51;
  return {sum - error, sum + error};
}

Bounds Candidates::exactTotal() {
  weight(keys.size() - 1);
  return total();
}

double Candidates::mass() const {
  Lanes masses = {};
  visitWeights([&](size_t i, float, float weight) {
    masses[i % kLanes] += toFixed(weight);
  });
  return sumOf(masses) / kFixedOne;
}

void Candidates::keepAbove(double least) {
  least = std::min(least, 1.0);
  size_t kept = 0;
  visitWeights([&](size_t i, float, float weight) {
    keys[kept] = keys[i];
    kept += weight >= least;
  });
  keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(kept), keys.end());
  beginAt(first);
}

void Candidates::keepFirst(size_t count) {
  weight(count - 1);
  keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end());
  weights.resize(count);
}

void Candidates::removeFirst(size_t count) {
  weight(count);
  keys.erase(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count));
  beginAt(keys.front().logit());
}

void Candidates::divide(float temperature) {
  for (CandidateKey &key : keys)
    key =
        CandidateKey(key.logit() / temperature, static_cast<size_t>(key.id()));
  // Quotients keep the order of logits.
  beginAt(first / temperature);
}

void Candidates::orderById() {
  const auto idOf = [](CandidateKey key) { return key.id(); };
  if (!std::ranges::is_sorted(keys, {}, idOf))
    std::ranges::sort(keys, {}, idOf);
  begin();
}
