//===- BadWords.cpp - Sequences of tokens that must not come --------------===//
//
// transformers' bad_words_ids.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/LogitProcessor.h"

#include <algorithm>
#include <span>

using namespace qwen;

/// Marks the last tokens of the sequences whose other tokens are the last ones
/// of prompt and answer.
static void markLastTokens(const SamplerOptions &options, SamplerState &state,
                           ProcessorBits bit) {
  const std::span<const int32_t> all = state.history;
  for (const std::vector<int32_t> &word : options.badWords) {
    const std::span before(word.data(), word.size() - 1);
    if (before.size() <= all.size() &&
        std::ranges::equal(all.last(before.size()), before))
      state.marks.add(word.back(), bit);
  }
}

const LogitProcessor logits::BadWords = {
    .isOn =
        [](const SamplerOptions &options) { return !options.badWords.empty(); },
    .process = [](const SamplerOptions &, const SamplerState &, size_t,
                  float &) { return false; },
    .prepare = markLastTokens};
