//===- SamplerOptions.h - How a token is drawn ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLEROPTIONS_H
#define QWEN_RUNTIME_ENGINE_SAMPLEROPTIONS_H

#include "artifact/Manifest.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// A number that is added to the logit of a token.
struct TokenBias {
  int32_t id;
  float bias;
};

class DryBreakers;

/// The samplers of Samplers.def that have a place in an order.
enum class SamplerKind : uint8_t {
#define QWEN_LOGITS(Name, Text) Name,
#define QWEN_CUT(Name, Text) Name,
#include "engine/samplers/Samplers.def"
};

/// Their names, in the usual order.
std::span<const std::string_view> samplerNames();
/// The samplers of some names. Throws Error for a name that is unknown or comes
/// twice.
std::vector<SamplerKind> parseSamplers(std::span<const std::string> names);

/// Texts that samplers need as tokens.
struct SamplerTexts {
  /// Texts that the answer must not contain.
  std::vector<std::string> badWords = {};
  /// Texts that DRY does not look past; nothing: llama.cpp's.
  std::optional<std::vector<std::string>> dryBreakers = {};

  std::vector<std::string> breakers() const;
};

/// SamplerOptions.def describes the fields.
struct SamplerOptions {
#define QWEN_SAMPLING(Type, Field, Name, Default, ...) Type Field = Default;
#include "qwen/ABI/SamplerOptions.def"
  /// Biases of one token add up.
  std::vector<TokenBias> logitBias = {};
  uint64_t seed = 0;
  /// The samplers in their order; others are off. Nothing: all.
  std::optional<std::vector<SamplerKind>> samplers = {};
  SamplerTexts texts = {};
  /// `texts` as tokens (resolveTexts). No sequence is empty; null: no breakers.
  std::vector<std::vector<int32_t>> badWords = {};
  std::shared_ptr<const DryBreakers> dryBreakers = nullptr;
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
