//===- MinTokens.cpp - Answers of a least length --------------------------===//
//
// transformers' min_new_tokens.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/LogitProcessor.h"

using namespace qwen;

static void startMinTokens(const SamplerOptions &, SamplerState &state,
                           ProcessorBits bit) {
  for (int32_t id : state.ends)
    state.marks.add(id, bit);
}

static bool allowsEnd(const SamplerOptions &options, const SamplerState &state,
                      size_t, float &) {
  return state.drawn >= options.minTokens;
}

const LogitProcessor logits::MinTokens = {
    .isOn = [](const SamplerOptions &options) { return options.minTokens > 0; },
    .process = allowsEnd,
    .start = startMinTokens};
