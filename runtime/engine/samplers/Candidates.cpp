//===- Candidates.cpp - The tokens that may be drawn ----------------------===//

#include "engine/samplers/Candidates.h"

#include "engine/samplers/Fixed.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/Math.h"

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

void Candidates::begin() {
  weights.clear();
  reach = 0;
  first = std::ranges::min_element(keys)->logit();
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
  for (CandidateKey key : keys)
    sum += weightOf(key);
  // A sum of n numbers in any order has a relative error below n * 2^-53.
  const double error = sum * static_cast<double>(keys.size()) * 0x1p-51;
  return {sum - error, sum + error};
}

Bounds Candidates::exactTotal() {
  weight(keys.size() - 1);
  return total();
}

Distribution Candidates::distribution() const {
  double mass = 0, dot = 0;
  for (CandidateKey key : keys) {
    const float logit = key.logit();
    const float below = logit == first ? 0 : logit - first;
    const float weight = numerics::exp(below);
    mass += toFixed(weight);
    // A weight of 0 is that of a logit that may be infinitely far below.
    dot += weight == 0 ? 0 : toFixed(weight * below);
  }
  return {mass / kFixedOne, numerics::log(mass / kFixedOne) - dot / mass};
}

double Candidates::mass() const {
  double mass = 0;
  for (CandidateKey key : keys)
    mass += toFixed(weightOf(key));
  return mass / kFixedOne;
}

void Candidates::keepFirst(size_t count) {
  weight(count - 1);
  keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end());
  weights.resize(count);
}

void Candidates::removeFirst(size_t count) {
  weight(count - 1);
  keys.erase(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count));
  begin();
}

void Candidates::divide(float temperature) {
  for (CandidateKey &key : keys)
    key =
        CandidateKey(key.logit() / temperature, static_cast<size_t>(key.id()));
  begin();
}

void Candidates::orderById() {
  const auto idOf = [](CandidateKey key) { return key.id(); };
  if (!std::ranges::is_sorted(keys, {}, idOf))
    std::ranges::sort(keys, {}, idOf);
  begin();
}
