//===- Sampler.h - From logits to a token -----------------------*- C++ -*-===//
//
// docs/numerics.md, "Sampling": the same logits, options and seed give the same
// token everywhere. The order of steps is that of transformers' generate():
// penalties, temperature, top-k, top-p, min-p. If logits tie with the k-th
// largest, transformers keeps all of them, and this sampler keeps the smallest
// ids.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLER_H
#define QWEN_RUNTIME_ENGINE_SAMPLER_H

#include "artifact/Manifest.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qwen {

/// A number that is added to the logit of a token.
struct TokenBias {
  int32_t id;
  float bias;
};

/// SamplerOptions.def describes the fields.
struct SamplerOptions {
#define QWEN_SAMPLING(Type, Field, Name, Default, ...) Type Field = Default;
#include "qwen/ABI/SamplerOptions.def"
  /// Biases of one token add up.
  std::vector<TokenBias> logitBias = {};
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
  /// to a prompt. `ends` are the tokens that minTokens holds back. Throws Error
  /// if an option is out of range.
  Sampler(const SamplerOptions &options, int64_t vocab, int64_t tokens,
          uint64_t answer = 0, std::span<const int32_t> ends = {});

  /// Marks a token of the prompt as already seen, for the repetition penalty.
  /// Throws Error if it is not in the vocabulary.
  void acceptPrompt(int32_t id);
  /// Marks a token of the answer as already seen, for all penalties. Throws
  /// Error if it is not in the vocabulary.
  void acceptDrawn(int32_t id);
  /// Forgets all tokens already seen.
  void reset();

  /// Draws the token at `position` of the sequence from the logits [vocab] of
  /// the token before it. Never draws a token with the logit -infinity. Throws
  /// Error if a logit is NaN or +infinity, or if all are -infinity.
  int32_t sample(std::span<const float> logits, uint64_t position);

private:
  /// A number that lies between two others.
  struct Bounds {
    double least, most;
  };

  void mark(int32_t id, uint8_t bits);
  /// Fills `blocks`. Throws Error if a logit is no number.
  void findGreatest(std::span<const float> logits);
  /// Calls visit(id, logit) for the candidates of a block, with what bias and
  /// penalties make of their logits.
  template <typename VisitType>
  void visitBlock(std::span<const float> logits, size_t block,
                  VisitType visit) const;
  float adjusted(size_t id, float logit) const;
  int32_t greedy(std::span<const float> logits) const;
  /// Fills `keys` with the candidates that top-k keeps, in any order.
  void selectKeys(std::span<const float> logits);
  float weightOf(uint64_t key) const;
  /// The weight of the i-th key in order.
  float weight(size_t i);
  /// Orders the next keys and computes their weights.
  void orderMore();
  /// Bounds of the sum of all weights in order, without the order.
  Bounds boundTotal() const;
  /// The number of tokens that top-p and min-p keep; nothing if the bounds of
  /// the sum of all weights leave it open.
  std::optional<size_t> countKept(const Bounds &total);
  /// The place of the token that the random number `u` draws; nothing if the
  /// bounds leave it open.
  std::optional<size_t> findPlace(double u, const Bounds &total);

  SamplerOptions options;
  uint64_t answer;
  size_t tokens;
  /// Number of tokens of the answer.
  int64_t drawn = 0;
  /// What changes the logit of each id, and the ids that have such bits.
  std::vector<uint8_t> marks;
  std::vector<int32_t> marked;
  /// By id; empty without an option that needs them.
  std::vector<float> biases;
  std::vector<int32_t> counts;
  /// A bound of the adjusted logits of each block of tokens. Blocks without a
  /// candidate are skipped.
  std::vector<float> blocks;
  /// Candidates (makeKey). The first weights.size() of them are in descending
  /// order of logits, and come before all others.
  std::vector<uint64_t> keys;
  /// The greatest logit of a candidate.
  float first = 0;
  /// The candidates in order have logits down to `first` less this.
  float reach = 0;
  /// exp(logit - greatest logit) of each candidate in order.
  std::vector<float> weights;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLER_H
