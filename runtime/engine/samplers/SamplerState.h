//===- SamplerState.h - What samplers know of the tokens so far -*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLERS_SAMPLERSTATE_H
#define QWEN_RUNTIME_ENGINE_SAMPLERS_SAMPLERSTATE_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qwen {

/// A bit for each LogitProcessor of an answer.
using ProcessorBits = uint8_t;

/// The tokens whose logits change, with a bit for each processor that changes
/// them.
class TokenMarks {
public:
  /// Only the first `tokens` of `vocab` ids are marked: padding cannot be
  /// drawn.
  TokenMarks(size_t vocab, size_t tokens) : tokens(tokens), bits(vocab) {
    marked.reserve(tokens);
  }

  size_t vocab() const { return bits.size(); }
  ProcessorBits operator[](size_t id) const { return bits[id]; }
  /// Ids with a bit.
  const std::vector<int32_t> &ids() const { return marked; }

  void add(int32_t id, ProcessorBits bit) {
    const auto i = static_cast<size_t>(id);
    if (i >= tokens)
      return;
    if (!bits[i])
      marked.push_back(id);
    bits[i] |= bit;
  }
  /// Removes bits of all tokens.
  void remove(ProcessorBits removed) {
    std::erase_if(marked, [&](int32_t id) {
      return !(bits[static_cast<size_t>(id)] &= ~removed);
    });
  }
  /// Takes over the bits of other marks of the same tokens.
  void follow(const TokenMarks &other) {
    for (int32_t id : marked)
      bits[static_cast<size_t>(id)] = 0;
    marked = other.marked;
    for (int32_t id : marked)
      bits[static_cast<size_t>(id)] = other.bits[static_cast<size_t>(id)];
  }

private:
  size_t tokens;
  std::vector<ProcessorBits> bits;
  std::vector<int32_t> marked;
};

/// The tokens so far, and what processors keep of them.
struct SamplerState {
  TokenMarks marks;
  /// Tokens that end the answer.
  std::vector<int32_t> ends = {};
  /// Number of tokens of the answer.
  int64_t drawn = 0;
  /// The tokens of prompt and answer, if a processor reads them.
  std::vector<int32_t> history = {};
  /// By id: the logit biases, and how often the answer has the token.
  std::vector<float> biases = {};
  std::vector<int32_t> counts = {};
  /// DRY's: by id, the length of the repetition with which it goes on; the ids
  /// for which that is not 0; by place, the length of a match.
  std::vector<int32_t> repeats = {}, repeating = {}, matches = {};

  /// Takes over the tokens of another state with the same options. Allocates
  /// nothing if there is room.
  void follow(const SamplerState &other) {
    // Tokens that count have marks.
    if (!counts.empty())
      for (int32_t id : marks.ids())
        counts[static_cast<size_t>(id)] = 0;
    marks.follow(other.marks);
    if (!counts.empty())
      for (int32_t id : marks.ids())
        counts[static_cast<size_t>(id)] = other.counts[static_cast<size_t>(id)];
    drawn = other.drawn;
    history = other.history;
  }
  /// Makes a state with other options ready to follow.
  void prepareFor(const SamplerState &other) {
    ends = other.ends;
    biases = other.biases;
    counts.assign(other.counts.size(), 0);
    repeats.assign(other.repeats.size(), 0);
    repeating.clear();
  }
  void reserveFor(const SamplerState &other) {
    ends.reserve(other.ends.size());
    history.reserve(other.history.capacity());
    biases.reserve(other.biases.size());
    counts.reserve(other.counts.size());
    repeats.reserve(other.repeats.size());
    repeating.reserve(other.repeating.capacity());
    matches.reserve(other.matches.capacity());
  }
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLERS_SAMPLERSTATE_H
