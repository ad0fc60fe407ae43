//===- Logprobs.cpp - Logs of probabilities -------------------------------===//

#include "engine/Logprobs.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/WideVectors.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

float qwen::greatestLogit(std::span<const float> logits) {
  // Compilers vectorize a maximum in each lane, but not over all lanes.
  constexpr size_t kLanes = 16;
  return numerics::inWideVectors([&] {
    float lanes[kLanes];
    uint32_t nans[kLanes] = {};
    std::ranges::fill(lanes, -INFINITY);
    const auto look = [&](size_t lane, float logit) {
      // All bits, as a vector's comparison gives them.
      nans[lane] |= -static_cast<uint32_t>(std::isnan(logit));
      lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
    };
    size_t i = 0;
    for (; i + kLanes <= logits.size(); i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane)
        look(lane, logits[i + lane]);
    for (; i < logits.size(); ++i)
      look(0, logits[i]);
    uint32_t nan = 0;
    float most = -INFINITY;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      nan |= nans[lane];
      most = lanes[lane] > most ? lanes[lane] : most;
    }
    return nan || most == INFINITY ? NAN : most;
  });
}

double qwen::logSumExp(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  return most + numerics::log(numerics::sumExp(logits, most));
}

double qwen::logSumWeights(std::span<const float> logits, float greatest) {
  return std::isfinite(greatest)
             ? greatest + numerics::log(numerics::sumWeights(logits, greatest))
             : 0;
}

double qwen::klDivergence(std::span<const float> p, double pSum,
                          std::span<const float> q, double qSum) {
  double divergence = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double logP = p[i] - pSum;
    divergence += numerics::exp(logP) * (logP - (q[i] - qSum));
  }
  return divergence;
}

void qwen::topTokens(std::span<const float> logits, size_t count,
                     std::vector<int32_t> &ids) {
  const auto isBefore = [&](int32_t a, int32_t b) {
    const float first = logits[static_cast<size_t>(a)];
    const float second = logits[static_cast<size_t>(b)];
    return first > second || (first == second && a < b);
  };
  ids.clear();
  count = std::min(count, logits.size());
  if (count == 0)
    return;
  // A heap with the last of the best tokens on top.
  for (int32_t id = 0; id < std::ssize(logits); ++id) {
    if (ids.size() == count) {
      if (!isBefore(id, ids.front()))
        continue;
      std::ranges::pop_heap(ids, isBefore);
      ids.pop_back();
    }
    ids.push_back(id);
    std::ranges::push_heap(ids, isBefore);
  }
  std::ranges::sort_heap(ids, isBefore);
}
