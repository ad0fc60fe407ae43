//===- Gptq.cpp - Weights of GPTQ -----------------------------------------===//
//
// Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative
// Pre-trained Transformers", 2023. AutoGPTQ and GPTQModel write the tensors.
//
//===----------------------------------------------------------------------===//

#include "Gptq.h"

#include "Grouped.h"
#include "TensorChecks.h"

#include "qwen/Support/Pattern.h"

using namespace qwen;

//===----------------------------------------------------------------------===//
// The weights
//===----------------------------------------------------------------------===//

namespace {
/// qweight [K bits / 32][N] has codes along K, low bits first, qzeros
/// [K / group][N bits / 32] along N; scales [K / group][N].
class GptqSource final : public GroupedSource {
public:
  GptqSource(WeightTensors tensors, std::string_view form, WeightShape shape,
             Grouping grouping, uint32_t added, std::vector<int32_t> groups)
      : GroupedSource(*tensors[0], form, std::move(shape),
                      storedBytesOf(tensors), grouping),
        codes(tensors[0]->bytes), scales(*tensors[1]),
        zeros(tensors[2] ? tensors[2]->bytes : std::span<const uint8_t>()),
        added(added), groupOfColumn(std::move(groups)) {}

private:
  void readCodes(int64_t first, int64_t count, uint8_t *to) const override {
    const int64_t outputs = shape().outputs(), k = shape().k();
    for (int64_t column = 0; column < k; column += inWord())
      for (int64_t i = 0; i < count; ++i) {
        uint32_t word = wordAt(codes, column / inWord() * outputs + first + i);
        for (int64_t j = 0; j < inWord(); ++j, word >>= grouping.bits)
          to[i * k + column + j] = static_cast<uint8_t>(word & mask());
      }
  }

  void readNumbers(int64_t first, int64_t count, float *scale,
                   float *offset) const override {
    const int64_t outputs = shape().outputs();
    const int64_t groupCount = shape().k() / grouping.group;
    float row[kPanelOutputs];
    for (int64_t group = 0; group < groupCount; ++group) {
      readFloats(scales, group * outputs + first, count, row);
      for (int64_t i = 0; i < count; ++i) {
        scale[i * groupCount + group] = row[i];
        if (!offset)
          continue;
        const int64_t at = group * outputs + first + i;
        // Writers subtract from the word, so that a zero point of 0 borrows.
        const uint32_t word = wordAt(zeros, at / inWord()) + added;
        offset[i * groupCount + group] = static_cast<float>(
            word >> (at % inWord() * grouping.bits) & mask());
      }
    }
  }

  std::span<const int32_t> groups() const override { return groupOfColumn; }

  int64_t inWord() const { return 32 / grouping.bits; }
  uint32_t mask() const { return (1u << grouping.bits) - 1; }

  const std::span<const uint8_t> codes;
  const StoredTensor scales;
  const std::span<const uint8_t> zeros;
  /// What makes zero points of the words of `zeros`.
  const uint32_t added;
  const std::vector<int32_t> groupOfColumn;
};
} // namespace

/// A word whose fields all are `field`.
static uint32_t filled(int bits, uint32_t field) {
  uint32_t word = 0;
  for (int at = 0; at < 32; at += bits)
    word |= field << at;
  return word;
}

/// Throws Error unless all zero points are the middle of the codes, or all are
/// 1 less: some files name the wrong version.
static void checkSymmetric(const StoredTensor &zeros, int bits) {
  const uint32_t middle = 1u << (bits - 1), first = wordAt(zeros.bytes, 0);
  for (int64_t i = 0; i < std::ssize(zeros.bytes) / 4; ++i)
    if (const uint32_t word = wordAt(zeros.bytes, i);
        word != first ||
        (word != filled(bits, middle) && word != filled(bits, middle - 1)))
      throw Error(describeTensor(zeros) + " has other zero points than " +
                  part::needed(middle) +
                  " when its quantization is symmetric (sym)");
}

WeightSourcePtr qwen::makeGptqWeight(WeightTensors tensors,
                                     const GptqSettings &settings,
                                     std::string_view form) {
  const StoredTensor &codes = *tensors[0], &scales = *tensors[1];
  const StoredTensor *zeros = tensors[2], *groups = tensors[3];
  requireMatrix(codes, "I32");
  const int64_t inWord = 32 / settings.bits;
  const int64_t k = codes.shape[0] * inWord, outputs = codes.shape[1];
  const int64_t group = groupSizeOf(codes, settings.group, k);
  requireFloats(scales);
  requireShape(scales, {k / group, outputs});
  if (zeros) {
    requireType(*zeros, "I32");
    requireShape(*zeros, {k / group, ceilDiv(outputs, inWord)});
    if (outputs % inWord != 0)
      throw Error(describeTensor(codes) + " has " + part::found(outputs) +
                  " outputs when " +
                  part::needed("a multiple of " + std::to_string(inWord)) +
                  " is needed");
  }
  if (settings.isSymmetric && zeros)
    checkSymmetric(*zeros, settings.bits);
  if (!settings.isSymmetric && !zeros)
    throw Error(describeTensor(codes) + " has no " + part::needed("qzeros") +
                " beside it when its quantization is not symmetric (sym)");
  if (settings.needsGroups && !groups)
    throw Error(describeTensor(codes) + " has no " + part::needed("g_idx") +
                " beside it when the columns of groups are scattered "
                "(desc_act)");
  const Grouping grouping = {settings.bits, group,
                             settings.isSymmetric ? GroupRule::Symmetric
                                                  : GroupRule::Zero};
  return std::make_shared<GptqSource>(
      tensors, form, WeightShape{{outputs, k}}, grouping,
      settings.storesLess ? filled(settings.bits, 1) : 0,
      groups ? readGroups(*groups, k, k / group) : std::vector<int32_t>());
}

//===----------------------------------------------------------------------===//
// The configuration
//===----------------------------------------------------------------------===//

int qwen::parseGptqBits(const JsonValue &value) {
  const int64_t bits = value.integer(1, 32);
  if (bits != 4 && bits != 8)
    value.refuse("supported are 4 and 8");
  return static_cast<int>(bits);
}

namespace {
/// A row of `dynamic`: what modules have in place of the settings of all.
struct ModuleRule {
  Pattern modules;
  /// Modules that are left in floats have none.
  std::optional<int> bits;
  std::optional<int64_t> group;
  std::optional<bool> isSymmetric, needsGroups;
};

class GptqForm final : public WeightForm {
public:
  explicit GptqForm(const JsonValue &config)
      : all{parseGptqBits(config.at("bits")),
            parseGroupSize(config.at("group_size")), true, storesLess(config),
            false} {
    if (const auto value = config.findValue("sym"))
      all.isSymmetric = value->boolean();
    if (const auto value = config.findValue("desc_act"))
      all.needsGroups = value->boolean();
    if (const auto type = config.findValue("pack_dtype");
        type && type->string() != "int32")
      type->refuse("supported is \"int32\"");
    if (const auto adapter = config.findValue("adapter"))
      adapter->refuse("supported is null");
    if (const auto rules = config.findValue("dynamic"))
      for (const auto &[modules, value] : rules->members())
        rulesOf.push_back(parseRule(modules, value));
    passOver(config, kNoEffect);
  }

  WeightSourcePtr make(WeightTensors tensors) const override {
    return makeGptqWeight(tensors, settingsOf(moduleOf(*tensors[0])), "GPTQ");
  }

private:
  /// How the integers were chosen, and which code runs them. The tensors tell
  /// which modules have integers.
  static constexpr const char *kNoEffect[] = {
      "quant_method",
      "damp_percent",
      "damp_auto_increment",
      "static_groups",
      "true_sequential",
      "act_group_aware",
      "mse",
      "dataset",
      "tokenizer",
      "batch_size",
      "model_seqlen",
      "max_input_length",
      "pad_token_id",
      "lm_head",
      "modules_in_block_to_quantize",
      "block_name_to_quantize",
      "module_name_preceding_first_block",
      "modules_to_not_convert",
      "model_name_or_path",
      "model_file_base_name",
      "meta",
      "backend",
      "exllama_config",
      "use_exllama",
      "disable_exllama",
      "use_cuda_fp16",
      "cache_block_outputs",
      "parallel_packing",
      "offload_to_disk"};

  /// Whether zero points are stored less 1. The second key is the newer one.
  static bool storesLess(const JsonValue &config) {
    for (const char *key : {"checkpoint_format", "format"})
      if (const auto format = config.findValue(key)) {
        if (format->string() != "gptq" && format->string() != "gptq_v2")
          format->refuse("supported are \"gptq\" and \"gptq_v2\"");
        return format->string() == "gptq";
      }
    return true;
  }

  static ModuleRule parseRule(std::string_view modules,
                              const JsonValue &settings) {
    const bool leavesOut = modules.starts_with("-:");
    if (leavesOut || modules.starts_with("+:"))
      modules.remove_prefix(2);
    ModuleRule rule = {Pattern(modules, settings.what()), {}, {}, {}, {}};
    if (leavesOut)
      return rule;
    if (const auto value = settings.findValue("bits"))
      rule.bits = parseGptqBits(*value);
    if (const auto value = settings.findValue("group_size"))
      rule.group = parseGroupSize(*value);
    if (const auto value = settings.findValue("sym"))
      rule.isSymmetric = value->boolean();
    if (const auto value = settings.findValue("desc_act"))
      rule.needsGroups = value->boolean();
    passOver(settings, kNoEffect);
    return rule;
  }

  /// The first rule that matches counts. A module that is left out has no
  /// qweight.
  GptqSettings settingsOf(std::string_view module) const {
    GptqSettings settings = all;
    for (const ModuleRule &rule : rulesOf)
      if (rule.modules.matchesStart(module)) {
        settings.bits = rule.bits.value_or(settings.bits);
        settings.group = rule.group.value_or(settings.group);
        settings.isSymmetric = rule.isSymmetric.value_or(settings.isSymmetric);
        settings.needsGroups = rule.needsGroups.value_or(settings.needsGroups);
        break;
      }
    return settings;
  }

  GptqSettings all;
  std::vector<ModuleRule> rulesOf;
};
} // namespace

std::unique_ptr<const WeightForm> qwen::makeGptqForm(const JsonValue &config) {
  return std::make_unique<GptqForm>(config);
}
