//===- Experts.cpp - The backward pass of a choice of experts -------------===//

#include "qwen/Gradients/Gradients.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>

using namespace qwen;

// The softmax takes all logits. Normalized, it takes the logits of the chosen
// experts alone.
// With p of the softmax, dlogit = p (dp - sum p dp).
void gradients::route(std::span<const float> logits,
                      std::span<const int32_t> ids, bool normalized,
                      const float *dWeights, float *dLogits) {
  const float most = std::ranges::max(logits);
  std::vector<float> powers(logits.size());
  std::ranges::transform(logits, powers.begin(),
                         [&](float logit) { return logit - most; });
  numerics::exp(powers);
  double sum = 0, mean = 0;
  if (!normalized)
    for (float power : powers)
      sum += double{power};
  for (size_t i = 0; i < ids.size(); ++i) {
    const double power = powers[static_cast<size_t>(ids[i])];
    if (normalized)
      sum += power;
    mean += power * double{dWeights[i]};
  }
  mean /= sum;
  const auto expertOf = [&](size_t i) { return static_cast<size_t>(ids[i]); };
  for (size_t i = 0; i < ids.size(); ++i)
    dLogits[expertOf(i)] +=
        static_cast<float>(powers[expertOf(i)] / sum * double{dWeights[i]});
  const auto take = [&](size_t expert) {
    dLogits[expert] -= static_cast<float>(powers[expert] / sum * mean);
  };
  if (normalized)
    for (size_t i = 0; i < ids.size(); ++i)
      take(expertOf(i));
  else
    for (size_t expert = 0; expert < logits.size(); ++expert)
      take(expert);
}
