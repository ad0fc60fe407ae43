//===- Sampler.h - From logits to a token -----------------------*- C++ -*-===//
//
// docs/numerics.md, "Sampling": the same logits, options and seed give the same
// token everywhere. The order of the steps is that of transformers'
// generate(): repetition penalty, temperature, top-k, top-p, min-p. Where
// logits tie with the k-th largest, transformers keeps all of them and this
// sampler those of the least ids.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLER_H
#define QWEN_RUNTIME_ENGINE_SAMPLER_H

#include "artifact/Manifest.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

struct SamplerOptions {
  /// 0: always the most likely token, the least id of several.
  float temperature = 1;
  /// Tokens kept; 0 keeps all.
  int64_t topK = 0;
  /// Share of the probability that is kept, in (0, 1].
  double topP = 1;
  /// Least probability kept, as a share of the greatest one.
  double minP = 0;
  /// Penalty for tokens already seen: divides their positive logits and
  /// multiplies the others; 1 disables it.
  float repetitionPenalty = 1;
  uint64_t seed = 0;
};

/// The checkpoint's own options: greedy unless it says do_sample.
SamplerOptions samplerOptions(const GenerationConfig &generation);

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
/// 3", 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

/// A double in [0, 1): words 0 (high) and 1 (low) of Philox with key (seed low,
/// high) and counter (answer low, high, position low, high), their upper 53
/// bits over 2^53.
double uniform(uint64_t seed, uint64_t answer, uint64_t position);

/// Draws the tokens of one sequence. `sample` allocates nothing.
class Sampler {
public:
  /// `vocab` is the number of logits, of which the first `tokens` can be drawn
  /// (the rest are padding rows). `answer` is the index of this answer within
  /// its request. Throws Error for an option that is out of range, by name.
  Sampler(const SamplerOptions &options, int64_t vocab, int64_t tokens,
          uint64_t answer = 0);

  /// Notes a token of the prompt or the answer for the repetition penalty.
  /// Throws Error where it is not in the vocabulary.
  void accept(int32_t id);
  /// Forgets all that were noted.
  void reset();

  /// The token at `position` of the sequence, from the logits [vocab] of the
  /// token before it. A token with the logit -infinity is never drawn. Throws
  /// Error where a logit is NaN or +infinity, or all are -infinity.
  int32_t sample(std::span<const float> logits, uint64_t position);

private:
  float penalized(std::span<const float> logits, size_t id) const;
  int32_t greedy(std::span<const float> logits) const;

  SamplerOptions options;
  uint64_t answer;
  size_t tokens;
  /// Whether each id was there.
  std::vector<uint8_t> seen;
  /// Candidates in order: the logit, mapped so that greater logits are less,
  /// over the id.
  std::vector<uint64_t> keys;
  /// exp(l - l_0) of each candidate.
  std::vector<float> weights;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLER_H
