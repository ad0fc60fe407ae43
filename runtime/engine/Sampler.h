//===- Sampler.h - From logits to a token -----------------------*- C++ -*-===//
//
// docs/numerics.md, "Sampling": the same logits, options and seed give the same
// token everywhere. samplers/Samplers.def has the steps and their order, that
// of transformers' generate(). If logits tie with the k-th largest,
// transformers keeps all of them, and this sampler keeps the smallest ids.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLER_H
#define QWEN_RUNTIME_ENGINE_SAMPLER_H

#include "engine/SamplerOptions.h"
#include "engine/samplers/Candidates.h"
#include "engine/samplers/SamplerState.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qwen {

struct LogitProcessor;
struct TokenCut;

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
/// 3", 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

/// The random numbers of a token, in [0, 1).
struct TokenRandoms {
  /// Draws the token.
  double draw;
  /// Decides whether XTC applies.
  double coin;
};

/// Each number is the upper 53 of 64 random bits over 2^53. The bits are words
/// 0 (high) and 1 (low) of Philox, for the coin words 2 and 3, with key (seed
/// low, high) and counter (answer low, high, position low, high).
TokenRandoms tokenRandoms(uint64_t seed, uint64_t answer, uint64_t position);

/// Draws the tokens of one sequence. `sample` allocates nothing.
class Sampler {
public:
  /// `vocab` is the number of logits. Only the first `tokens` can be drawn; the
  /// rest are padding. `answer` is the index of this answer among the answers
  /// to a prompt. `ends` are the tokens that minTokens holds back. Throws Error
  /// if an option is out of range.
  Sampler(const SamplerOptions &options, int64_t vocab, int64_t tokens,
          uint64_t answer = 0, std::span<const int32_t> ends = {});

  /// Makes room for this many tokens, so that none of the functions below
  /// allocates memory for them.
  void reserve(size_t count);
  /// Marks a token of the prompt as already seen, for the repetition penalty.
  /// Throws Error if it is not in the vocabulary.
  void acceptPrompt(int32_t id);
  /// Marks a token of the answer as already seen, for all penalties. Mirostat
  /// learns from the one that `sample` drew last. Throws Error if it is not in
  /// the vocabulary.
  void acceptDrawn(int32_t id);
  /// Forgets all tokens already seen.
  void reset();

  /// Draws the token at `position` of the sequence from the logits [vocab] of
  /// the token before it. Never draws a token with the logit -infinity. Throws
  /// Error if a logit is NaN or +infinity, or if all are -infinity.
  int32_t sample(std::span<const float> logits, uint64_t position);

  /// Does what `sample` does where all other logits than `id`'s are -infinity,
  /// whatever that one is. Throws Error if it would draw no token.
  void force(int32_t id);

  /// The tokens that `sample` may draw there at this time, most likely first.
  /// Throws Error as sample does.
  std::vector<int32_t> keptTokens(std::span<const float> logits,
                                  uint64_t position);

  /// Sets `keys` to the `count` greatest of the logs of probabilities of the
  /// next tokens, with what bias and penalties make of them, in any order.
  /// Returns the log of the sum of all probabilities: the log of a token's is
  /// its logit [vocab] less this, in f32. Allocates nothing if `keys` has room.
  /// Throws Error if a logit is NaN or +infinity.
  double best(std::span<const float> logits, size_t count,
              std::vector<CandidateKey> &keys);
  /// What bias and penalties make of the log of a token's probability.
  float penalized(int32_t id, float logprob) const;
  /// Takes over what another sampler with the same options has seen.
  void follow(const Sampler &other) { state.follow(other.state); }
  /// Takes over options and tokens of another sampler of the same model, to
  /// draw what that would. Allocates nothing after reserveFor.
  void become(const Sampler &other);
  /// Makes room for all that another sampler has room for.
  void reserveFor(const Sampler &other);

private:
  /// Logits, or with a sum the logs of probabilities.
  struct Row {
    std::span<const float> logits;
    double sum = 0;
    float operator[](size_t id) const {
      return static_cast<float>(logits[id] - sum);
    }
  };
  /// A processor that the options ask for, and its bit of marks.
  struct Processor {
    const LogitProcessor *processor;
    ProcessorBits bit;
  };

  void checkOptions() const;
  void addSteps();
  void startProcessors();
  void accept(int32_t id, bool isDrawn);
  /// Removes the marks of the last draw, and lets processors mark tokens for
  /// the next one.
  void prepare();
  /// Fills `blocks` with the greatest of each. Throws Error if a logit is no
  /// number.
  void findGreatest(std::span<const float> logits);
  /// Makes `blocks` bounds of what processors make of the logits less `sum`.
  void processGreatest(const Row &row);
  /// Calls visit(id, logit) for the candidates of a block, with what processors
  /// make of their logits.
  template <typename VisitType>
  void visitBlock(const Row &row, size_t block, VisitType visit) const;
  /// Lets the first processors change the logit of a marked token. Returns
  /// whether it may be drawn.
  bool process(size_t id, float &logit) const;
  bool process(const Processor &with, size_t id, float &logit) const;
  int32_t greedy(std::span<const float> logits) const;
  /// Sets `keys` to all of the processed logits, divided by `divisor`.
  void collectAll(std::span<const float> logits,
                  std::vector<CandidateKey> &keys) const;
  /// Sets `keys` to the `most` greatest of the processed numbers of a row,
  /// divided by `over`; with fewer tokens, to all.
  void collectBest(const Row &row, float over, size_t most,
                   std::vector<CandidateKey> &keys);
  /// Adds the tokens of a block that are among the `most` greatest so far.
  void addBest(const Row &row, float over, size_t most, size_t block,
               std::vector<CandidateKey> &keys) const;
  /// Fills `candidates` with all tokens. If top-k is the first cut, fills it
  /// with the k most likely tokens only.
  void select(std::span<const float> logits);
  /// Fills `candidates` with the tokens that all cuts keep.
  void cut(std::span<const float> logits, double coin);
  /// The surprise of a candidate, in bits.
  double surpriseOf(CandidateKey key) const;

  std::shared_ptr<const SamplerOptions> options;
  uint64_t answer;
  size_t tokens;
  SamplerState state;
  /// In order. Those from number `early` on come after a cut.
  std::vector<Processor> processors;
  size_t early = 0;
  /// In order, after the first processors and a division of all logits by
  /// `divisor`: a cut, or an index of a processor.
  struct Step {
    const TokenCut *cut;
    size_t processor = 0;
  };
  std::vector<Step> steps;
  float divisor = 1;
  /// The bits of processors whose marks are for one draw, and the bits whose
  /// marks `reset` removes.
  ProcessorBits drawBits = 0, acceptBits = 0;
  /// A bound of the processed logits of each block of tokens. Blocks without a
  /// candidate are skipped.
  std::vector<float> blocks;
  std::vector<float> sortedBlocks;
  /// Mirostat's bound of the surprise of a token, in bits, and the last token
  /// that `sample` drew with its surprise.
  double mu = 0;
  int32_t lastDrawn = -1;
  double lastSurprise = 0;
  Candidates candidates;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLER_H
