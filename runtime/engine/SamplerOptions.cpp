//===- SamplerOptions.cpp - How a token is drawn --------------------------===//

#include "engine/SamplerOptions.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>

using namespace qwen;

SamplerOptions qwen::samplerOptions(const GenerationConfig &generation) {
  SamplerOptions options;
#define QWEN_MODEL_SAMPLING(Type, Field, ...)                                  \
  options.Field = static_cast<Type>(generation.Field);
#include "qwen/ABI/SamplerOptions.def"
  if (!generation.doSample)
    options.temperature = 0;
  return options;
}

static constexpr SamplerSetting kSettings[] = {
#define QWEN_PRESET_SETTING(Preset, Name, Value) {#Preset, #Name, Value},
#include "qwen/ABI/SamplerPresets.def"
};

static constexpr SamplerPreset kPresets[] = {
#define QWEN_PRESET(Name, Help) {#Name, Help},
#include "qwen/ABI/SamplerPresets.def"
};

std::span<const SamplerPreset> qwen::samplerPresets() { return kPresets; }

std::vector<SamplerSetting> SamplerPreset::settings() const {
  std::vector<SamplerSetting> result;
  std::ranges::copy_if(
      kSettings, std::back_inserter(result),
      [&](const SamplerSetting &setting) { return setting.preset == name; });
  return result;
}

void SamplerPreset::apply(SamplerOptions &options) const {
  for (const SamplerSetting &setting : settings()) {
#define QWEN_SAMPLING(Type, Field, Name, ...)                                  \
  if (setting.option == #Name)                                                 \
    options.Field = static_cast<Type>(setting.value);
#include "qwen/ABI/SamplerOptions.def"
  }
}

const SamplerPreset &qwen::samplerPreset(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &SamplerPreset::name);
  if (found != std::end(kPresets))
    return *found;
  std::string names;
  for (const SamplerPreset &preset : kPresets)
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  throw Error("there is no preset " + quote(name) + ": the presets are " +
              names);
}
