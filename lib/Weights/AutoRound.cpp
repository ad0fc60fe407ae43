//===- AutoRound.cpp - Weights of AutoRound -------------------------------===//
//
// Cheng et al., "Optimize Weight Rounding via Signed Gradient Descent for the
// Quantization of LLMs", 2024. The tensors are packed as GPTQ or AWQ packs
// them.
//
//===----------------------------------------------------------------------===//

#include "Awq.h"
#include "Gptq.h"
#include "TensorChecks.h"

#include "qwen/Support/Pattern.h"

#include <algorithm>

using namespace qwen;

namespace {
/// A packing_format.
struct Packing {
  std::string_view name;
  bool isAwq;
  /// Whether zero points are stored less 1.
  bool storesLess;
};

/// The settings of a module or of all.
struct Settings {
  std::optional<int> bits;
  std::optional<int64_t> group;
  std::optional<bool> isSymmetric;

  Settings over(const Settings &others) const {
    return {bits ? bits : others.bits, group ? group : others.group,
            isSymmetric ? isSymmetric : others.isSymmetric};
  }
};

/// A row of extra_config: a module, or a regular expression.
struct ModuleSettings {
  std::string module;
  std::optional<Pattern> modules;
  Settings settings;
};
} // namespace

static constexpr Packing kPackings[] = {
    {"auto_round:auto_gptq", false, true},
    {"auto_round", false, false},
    {"auto_round:exllamav2", false, false},
    {"auto_round:gptqmodel", false, false},
    {"auto_round:auto_awq", true, false},
};

static const Packing &parsePacking(const JsonValue &value) {
  std::string names;
  for (const Packing &packing : kPackings) {
    if (value.string() == packing.name)
      return packing;
    names += (names.empty() ? "" : ", ") + std::string(packing.name);
  }
  value.refuse("supported are " + names);
}

/// Modules that are left in floats have 16 bits or more.
static Settings parseSettings(const JsonValue &config) {
  Settings settings;
  const auto bits = config.findValue("bits");
  const bool isFloat = bits && bits->integer(1, 32) >= 16;
  if (bits && !isFloat)
    settings.bits = parseGptqBits(*bits);
  if (const auto group = config.findValue("group_size"))
    settings.group = parseGroupSize(*group);
  if (const auto symmetric = config.findValue("sym"))
    settings.isSymmetric = symmetric->boolean();
  if (const auto type = config.findValue("data_type");
      type && !isFloat && type->string() != "int")
    type->refuse("supported is \"int\"");
  return settings;
}

namespace {
class AutoRoundForm final : public WeightForm {
public:
  explicit AutoRoundForm(const JsonValue &config)
      : packing(parsePacking(config.at("packing_format"))),
        all(parseSettings(config)) {
    all = all.over({parseGptqBits(config.at("bits")),
                    parseGroupSize(config.at("group_size")), true});
    if (packing.isAwq && *all.bits != 4)
      config.at("bits").refuse("supported is 4 of " +
                               std::string(packing.name));
    if (const auto extra = config.findValue("extra_config"))
      for (const auto &[module, value] : extra->members())
        some.push_back(parseModule(module, value));
    passOver(config, kNoEffect);
  }

  WeightSourcePtr make(WeightTensors tensors) const override {
    const Settings settings = settingsOf(moduleOf(*tensors[0])).over(all);
    if (packing.isAwq && !tensors[2])
      throw Error(describeTensor(*tensors[0]) + " has no " +
                  part::needed("qzeros") + " beside it");
    if (packing.isAwq && *settings.bits != 4)
      throw Error(describeTensor(*tensors[0]) + " has " +
                  part::found(*settings.bits) + " bits when " +
                  part::needed("4 of " + std::string(packing.name)) +
                  " are needed");
    if (packing.isAwq)
      return makeAwqWeight(tensors, {*settings.group, *settings.isSymmetric},
                           "AutoRound");
    return makeGptqWeight(tensors,
                          {*settings.bits, *settings.group,
                           *settings.isSymmetric, packing.storesLess},
                          "AutoRound");
  }

private:
  /// How the integers were chosen. The tensors tell which modules have some.
  static constexpr const char *kNoEffect[] = {"quant_method",
                                              "autoround_version",
                                              "block_name_to_quantize",
                                              "to_quant_block_names",
                                              "quant_block_list",
                                              "model_free",
                                              "enable_quanted_input",
                                              "enable_minmax_tuning",
                                              "enable_norm_bias_tuning",
                                              "low_gpu_mem_usage",
                                              "iters",
                                              "lr",
                                              "minmax_lr",
                                              "nsamples",
                                              "seqlen",
                                              "batch_size",
                                              "gradient_accumulate_steps",
                                              "dataset",
                                              "scale_dtype",
                                              "amp",
                                              "backend",
                                              "damp_percent",
                                              "desc_act",
                                              "true_sequential",
                                              "lm_head",
                                              "act_bits",
                                              "act_data_type",
                                              "act_dynamic",
                                              "act_group_size",
                                              "act_sym"};

  /// A name with one of these characters is a regular expression, which may
  /// match anywhere; a plain name counts before them.
  static ModuleSettings parseModule(const std::string &module,
                                    const JsonValue &value) {
    ModuleSettings result = {module, {}, parseSettings(value)};
    if (module.find_first_of("*+?^$()[]{}|\\") != module.npos)
      result.modules.emplace(module, value.what());
    passOver(value, kNoEffect);
    return result;
  }

  Settings settingsOf(std::string_view module) const {
    const auto plain = std::ranges::find(some, module, &ModuleSettings::module);
    if (plain != some.end())
      return plain->settings;
    for (const ModuleSettings &row : some)
      if (row.modules && row.modules->matchesPart(module))
        return row.settings;
    return {};
  }

  const Packing &packing;
  Settings all;
  std::vector<ModuleSettings> some;
};
} // namespace

std::unique_ptr<const WeightForm>
qwen::makeAutoRoundForm(const JsonValue &config) {
  return std::make_unique<AutoRoundForm>(config);
}
