//===- Sampler.h - From logits to a token -----------------------*- C++ -*-===//
//
// docs/numerics.md, "Sampling": the same logits, options and seed give the same
// token everywhere. The order of steps is that of transformers' generate():
// repetition penalty, temperature, top-k, top-p, min-p. If logits tie with the
// k-th largest, transformers keeps all of them, and this sampler keeps the
// smallest ids.
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
  /// 0: always the most likely token; of equals, the smallest id.
  float temperature = 1;
  /// Number of most likely tokens that are kept; 0 keeps all.
  int64_t topK = 0;
  /// The most likely tokens that together have this probability are kept, in
  /// (0, 1].
  double topP = 1;
  /// Tokens below this fraction of the highest probability are skipped.
  double minP = 0;
  /// Penalty for tokens already seen: divides their positive logits and
  /// multiplies the others; 1 disables it.
  float repetitionPenalty = 1;
  uint64_t seed = 0;
};

/// The checkpoint's sampling options; temperature 0 unless it sets do_sample.
SamplerOptions samplerOptions(const GenerationConfig &generation);

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
/// 3", 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

/// A random double in [0, 1): the upper 53 of 64 random bits over 2^53. The
/// bits are words 0 (high) and 1 (low) of Philox with key (seed low, high) and
/// counter (answer low, high, position low, high).
double uniform(uint64_t seed, uint64_t answer, uint64_t position);

/// Draws the tokens of one sequence. `sample` allocates nothing.
class Sampler {
public:
  /// `vocab` is the number of logits. Only the first `tokens` can be drawn; the
  /// rest are padding. `answer` is the index of this answer among the answers
  /// to a prompt. Throws Error if an option is out of range.
  Sampler(const SamplerOptions &options, int64_t vocab, int64_t tokens,
          uint64_t answer = 0);

  /// Marks a token of the prompt or the answer as already seen, for the
  /// repetition penalty. Throws Error if it is not in the vocabulary.
  void accept(int32_t id);
  /// Forgets all tokens already seen.
  void reset();

  /// Draws the token at `position` of the sequence from the logits [vocab] of
  /// the token before it. Never draws a token with the logit -infinity. Throws
  /// Error if a logit is NaN or +infinity, or if all are -infinity.
  int32_t sample(std::span<const float> logits, uint64_t position);

private:
  /// Fills `blocks`. Throws Error if no token can be drawn.
  void findGreatest(std::span<const float> logits);
  /// Fills `keys` with the candidates that top-k keeps.
  void selectKeys(std::span<const float> logits);
  float penalize(float logit) const;
  float penalized(std::span<const float> logits, size_t id) const;
  float bound(float most) const;
  int32_t greedy(std::span<const float> logits) const;

  SamplerOptions options;
  uint64_t answer;
  size_t tokens;
  /// Whether each id was already seen.
  std::vector<uint8_t> seen;
  /// The greatest logit of each block of tokens. Blocks without a candidate are
  /// skipped.
  std::vector<float> blocks;
  /// Candidates in descending order of logits (makeKey).
  std::vector<uint64_t> keys;
  /// exp(logit - greatest logit) of each candidate.
  std::vector<float> weights;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLER_H
