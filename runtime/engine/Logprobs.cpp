//===- Logprobs.cpp - Logs of probabilities -------------------------------===//

#include "engine/Logprobs.h"

#include "qwen/Numerics/Doubles.h"

#include <algorithm>

using namespace qwen;

double qwen::logSumExp(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  return most + numerics::log(numerics::sumExp(logits, most));
}

void qwen::toLogprobs(std::span<float> logits) {
  const double sum = logSumExp(logits);
  for (float &logit : logits)
    logit = static_cast<float>(logit - sum);
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
