//===- SamplerOptions.h - How a token is drawn ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLEROPTIONS_H
#define QWEN_RUNTIME_ENGINE_SAMPLEROPTIONS_H

#include "artifact/Manifest.h"

#include <cstdint>
#include <span>
#include <string_view>
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

/// A row of SamplerPresets.def: the value of an option.
struct SamplerSetting {
  std::string_view preset, option;
  double value;
};

/// A row of SamplerPresets.def.
struct SamplerPreset {
  std::string_view name, help;

  std::vector<SamplerSetting> settings() const;
  /// Sets the options that the preset names.
  void apply(SamplerOptions &options) const;
};

std::span<const SamplerPreset> samplerPresets();
/// Throws Error with all names if there is no preset `name`.
const SamplerPreset &samplerPreset(std::string_view name);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLEROPTIONS_H
