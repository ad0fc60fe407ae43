//===- Logprobs.h - Logs of probabilities -----------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_LOGPROBS_H
#define QWEN_RUNTIME_ENGINE_LOGPROBS_H

#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// The greatest of some logits, or NaN if one is NaN or +infinity.
float greatestLogit(std::span<const float> logits);

/// The log of the sum of exp(logit) (docs/numerics.md). The log of the
/// probability of a token is its logit minus this number.
double logSumExp(std::span<const float> logits);

/// The same from sumWeights in place of sumExp, which a whole row has faster.
/// `greatest` is the greatest logit; 0 if it is no finite number.
double logSumWeights(std::span<const float> logits, float greatest);

/// The Kullback-Leibler divergence of two distributions of the same tokens, in
/// nats, computed in double: the mean of log(p / q) over tokens drawn from p.
/// `p` and `q` are logits; `pSum` and `qSum` are their logSumExp.
double klDivergence(std::span<const float> p, double pSum,
                    std::span<const float> q, double qSum);

/// Sets `ids` to the tokens with the `count` greatest logits, in descending
/// order; of equals, the smallest id is first. Allocates nothing if `ids` has
/// room for `count`.
void topTokens(std::span<const float> logits, size_t count,
               std::vector<int32_t> &ids);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_LOGPROBS_H
