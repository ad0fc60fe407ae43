//===- NoRepeatNgram.cpp - No sequence of tokens comes twice --------------===//
//
// transformers' no_repeat_ngram_size.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/LogitProcessor.h"

#include <algorithm>
#include <span>

using namespace qwen;

/// Marks the tokens that would repeat an n-gram.
static void markRepeats(const SamplerOptions &options, SamplerState &state,
                        ProcessorBits bit) {
  const auto size = static_cast<size_t>(options.noRepeatNgram);
  const std::span<const int32_t> all = state.history;
  if (all.size() < size)
    return;
  const auto last = all.last(size - 1);
  for (size_t i = 0; i + size <= all.size(); ++i)
    if (std::ranges::equal(all.subspan(i, size - 1), last))
      state.marks.add(all[i + size - 1], bit);
}

const LogitProcessor logits::NoRepeatNgram = {
    .isOn =
        [](const SamplerOptions &options) { return options.noRepeatNgram > 0; },
    .process = [](const SamplerOptions &, const SamplerState &, size_t,
                  float &) { return false; },
    .prepare = markRepeats};
