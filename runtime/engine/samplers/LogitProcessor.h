//===- LogitProcessor.h - What changes logits before the cuts ---*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLERS_LOGITPROCESSOR_H
#define QWEN_RUNTIME_ENGINE_SAMPLERS_LOGITPROCESSOR_H

#include "engine/SamplerOptions.h"
#include "engine/samplers/SamplerState.h"

namespace qwen {

/// Changes the logits of the tokens that it marks with its bit, or forbids
/// them. A function that is null does nothing.
struct LogitProcessor {
  /// Whether the options ask for it.
  bool (*isOn)(const SamplerOptions &options);
  /// Changes the logit of a marked token. Returns whether it may be drawn.
  bool (*process)(const SamplerOptions &options, const SamplerState &state,
                  size_t id, float &logit);
  /// Marks the tokens that it changes in all draws.
  void (*start)(const SamplerOptions &options, SamplerState &state,
                ProcessorBits bit) = nullptr;
  /// Takes a token of the prompt or of the answer. Its marks stay until
  /// Sampler::reset.
  void (*accept)(const SamplerOptions &options, SamplerState &state,
                 ProcessorBits bit, int32_t id, bool isDrawn) = nullptr;
  /// Marks tokens for the next draw alone. Who has it reads
  /// SamplerState::history.
  void (*prepare)(const SamplerOptions &options, SamplerState &state,
                  ProcessorBits bit) = nullptr;
};

namespace logits {
#define QWEN_FIRST_LOGITS(Name) extern const LogitProcessor Name;
#define QWEN_LOGITS(Name, Text) extern const LogitProcessor Name;
#include "engine/samplers/Samplers.def"
} // namespace logits

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLERS_LOGITPROCESSOR_H
