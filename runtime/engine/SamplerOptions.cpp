//===- SamplerOptions.cpp - How a token is drawn --------------------------===//

#include "engine/SamplerOptions.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <iterator>
#include <ranges>

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

static constexpr std::string_view kNames[] = {
#define QWEN_LOGITS(Name, Text) #Text,
#define QWEN_CUT(Name, Text) #Text,
#include "engine/samplers/Samplers.def"
};

std::span<const std::string_view> qwen::samplerNames() { return kNames; }

template <typename Names> static std::string listOf(const Names &names) {
  std::string list;
  for (std::string_view name : names)
    list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

std::vector<SamplerKind>
qwen::parseSamplers(std::span<const std::string> names) {
  std::vector<SamplerKind> kinds;
  for (const std::string &name : names) {
    const auto *const found = std::ranges::find(kNames, name);
    if (found == std::end(kNames))
      throw Error("there is no sampler " + quote(name) + ": the samplers are " +
                  listOf(kNames));
    const auto kind = static_cast<SamplerKind>(found - kNames);
    if (std::ranges::count(kinds, kind))
      throw Error("the sampler " + name + " comes twice when each comes once");
    kinds.push_back(kind);
  }
  return kinds;
}

std::vector<std::string> SamplerTexts::breakers() const {
  return dryBreakers.value_or(std::vector<std::string>{"\n", ":", "\"", "*"});
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
  throw Error("there is no preset " + quote(name) + ": the presets are " +
              listOf(kPresets | std::views::transform(&SamplerPreset::name)));
}
