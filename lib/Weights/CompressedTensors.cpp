//===- CompressedTensors.cpp - The forms of compressed-tensors ------------===//

#include "Codes.h"
#include "Float8.h"
#include "Grouped.h"
#include "Mxfp4.h"
#include "TensorChecks.h"

#include "qwen/Support/Pattern.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

using namespace qwen;

//===----------------------------------------------------------------------===//
// The configuration
//===----------------------------------------------------------------------===//

namespace {
/// A format, and what it holds.
struct CompressedFormat {
  std::string_view name;
  /// Whether in weight_packed; else in weight.
  bool isPacked;
  /// The bits that integers and floats may have, 0: none.
  int64_t integerBits[2], floatBits;
};
} // namespace

static constexpr CompressedFormat kCompressedFormats[] = {
    {"pack-quantized", true, {4, 8}, 0},
    {"int-quantized", false, {8, 8}, 0},
    {"float-quantized", false, {0, 0}, 8},
    {"naive-quantized", false, {8, 8}, 8},
    {"mxfp4-pack-quantized", true, {0, 0}, 4},
};

namespace {
/// How the modules of a group are quantized.
struct CompressedScheme {
  const CompressedFormat *format;
  bool isFloat, isSymmetric;
  int64_t bits;
  /// What shares a scale.
  ScaleBlock block;
};

/// What a group applies to: the name of a module, a class of modules, or a
/// regular expression that matches from the start of a name.
struct GroupTarget {
  std::string text;
  std::optional<Pattern> pattern;

  bool isModule(std::string_view name) const {
    return pattern ? pattern->matchesStart(name) : text == name;
  }
};

struct TargetGroup {
  std::vector<GroupTarget> targets;
  CompressedScheme scheme;
};
} // namespace

/// Which modules are quantized, the tensors tell, as they do for the order of
/// columns. Activations and caches are quantized our way.
static constexpr const char *kConfigNoEffect[] = {
    "ignore",  "kv_cache_scheme", "quantization_status",     "quant_method",
    "version", "format",          "global_compression_ratio"};
static constexpr const char *kGroupNoEffect[] = {"input_activations",
                                                 "output_activations"};
/// What a strategy does not need, and how the values were found.
static constexpr const char *kSchemeNoEffect[] = {
    "actorder",        "block_structure", "group_size", "observer",
    "observer_kwargs", "scale_dtype",     "zp_dtype"};

static const CompressedFormat &readFormat(const JsonValue &group,
                                          const JsonValue &config) {
  const auto own = group.findValue("format");
  const JsonValue value = own ? *own : config.at("format");
  const auto *found = std::ranges::find(kCompressedFormats, value.string(),
                                        &CompressedFormat::name);
  if (found == std::end(kCompressedFormats))
    value.refuse(
        "supported are pack-quantized, int-quantized, float-quantized, "
        "naive-quantized and mxfp4-pack-quantized; the original model "
        "can be compiled");
  return *found;
}

static ScaleBlock readBlock(const JsonValue &weights) {
  const JsonValue strategy = weights.at("strategy");
  const std::string &name = strategy.string();
  if (name == "tensor")
    return {0, 0};
  if (name == "channel")
    return {1, 0};
  if (name == "block")
    return readScaleBlock(weights.at("block_structure"));
  if (name != "group")
    strategy.refuse("supported are group, channel, block and tensor");
  return {1, weights.at("group_size").integer(1, INT32_MAX)};
}

static CompressedScheme readScheme(const JsonValue &weights,
                                   const CompressedFormat &format) {
  passOver(weights, kSchemeNoEffect);
  CompressedScheme scheme = {&format, false, true, 0, readBlock(weights)};
  if (const auto type = weights.findValue("type")) {
    scheme.isFloat = type->string() == "float";
    if (!scheme.isFloat && type->string() != "int")
      type->refuse("supported are int and float");
  }
  if (const auto symmetric = weights.findValue("symmetric"))
    scheme.isSymmetric = symmetric->boolean();
  if (const auto dynamic = weights.findValue("dynamic");
      dynamic && !dynamic->is(false))
    dynamic->refuse("supported is false");
  const JsonValue bits = weights.at("num_bits");
  scheme.bits = bits.integer(1, 16);
  const bool isSupported =
      scheme.isFloat ? scheme.bits == format.floatBits
                     : std::ranges::count(format.integerBits, scheme.bits) != 0;
  if (!isSupported)
    bits.error(part::found(scheme.bits) + " of type " +
               (scheme.isFloat ? "float" : "int") + " is not what " +
               part::needed(std::string(format.name)) + " holds");
  if (scheme.isFloat && !scheme.isSymmetric)
    weights.at("symmetric").refuse("supported of floats is true");
  if (scheme.isFloat && scheme.bits == 4)
    weights.at("group_size").integer(32, 32);
  if (!scheme.isFloat && scheme.block.outputs > 1)
    weights.at("strategy")
        .refuse("supported of integers are group, channel and "
                "tensor");
  return scheme;
}

/// The groups whose weights are quantized.
static std::vector<TargetGroup> parseGroups(const JsonValue &config) {
  std::vector<TargetGroup> groups;
  for (const auto &[name, value] : config.at("config_groups").members()) {
    passOver(value, kGroupNoEffect);
    const auto weights = value.findValue("weights");
    if (!weights)
      continue;
    TargetGroup &group = groups.emplace_back();
    group.scheme = readScheme(*weights, readFormat(value, config));
    for (const JsonValue &target : value.at("targets").elements()) {
      static constexpr std::string_view kRegex = "re:";
      const std::string &text = target.string();
      GroupTarget &added = group.targets.emplace_back(text);
      if (text.starts_with(kRegex))
        added.pattern.emplace(std::string_view(text).substr(kRegex.size()),
                              target.what());
    }
  }
  return groups;
}

/// Refuses what would change the weights beside the groups, or the number of
/// experts.
static void refuseTransforms(const JsonValue &config) {
  if (const auto experts = config.findValue("moe_sparsity_config"))
    experts->refuse("supported are models with all experts in each layer");
  if (const auto transforms = config.findValue("transform_config"))
    if (const auto groups = transforms->findValue("config_groups");
        groups && !groups->members().empty())
      groups->refuse("supported are models without transforms");
  if (const auto sparsity = config.findValue("sparsity_config"))
    if (const auto format = sparsity->findValue("format");
        format && format->string() != "dense")
      format->refuse("supported is dense");
}

namespace {
class CompressedTensorsForm : public WeightForm {
public:
  explicit CompressedTensorsForm(const JsonValue &config)
      : groups(parseGroups(config)) {
    passOver(config, kConfigNoEffect);
    refuseTransforms(config);
  }

protected:
  /// The scheme of the module of `tensor`, which is a packed one or not. As in
  /// the library, names count before classes. Throws Error if there is none, or
  /// one of other tensors.
  const CompressedScheme &schemeOf(const StoredTensor &tensor,
                                   bool isPacked) const {
    const std::string_view name = moduleOf(tensor);
    const auto isIn = [](auto isTarget) {
      return [=](const TargetGroup &group) {
        return std::ranges::any_of(group.targets, isTarget);
      };
    };
    auto found = std::ranges::find_if(
        groups, isIn([&](const GroupTarget &t) { return t.isModule(name); }));
    if (found == groups.end())
      found = std::ranges::find_if(groups, isIn([](const GroupTarget &t) {
                                     return t.text == "Linear";
                                   }));
    if (found == groups.end())
      throw Error(describeTensor(tensor) + " is quantized but no target in " +
                  part::needed("config_groups") + " has its module");
    const CompressedFormat &format = *found->scheme.format;
    if (format.isPacked != isPacked)
      throw Error(describeTensor(tensor) + " is not a tensor of " +
                  part::needed(std::string(format.name)) +
                  ", the format of its module");
    return found->scheme;
  }

private:
  const std::vector<TargetGroup> groups;
};
} // namespace

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

namespace {
/// The tensors of a matrix of integers.
struct IntegerTensors {
  const StoredTensor *codes, *scales;
  const StoredTensor *zeros = nullptr, *groups = nullptr;
};

/// (code - zero point) * scale. Codes lie in a row of words for each output, or
/// are signed bytes.
class IntegerSource final : public GroupedSource {
public:
  IntegerSource(const IntegerTensors &tensors, const WeightShape &shape,
                const CompressedScheme &scheme, int64_t group)
      : GroupedSource(
            *tensors.codes, "compressed-tensors", shape,
            storedBytesOf(std::array{tensors.codes, tensors.scales,
                                     tensors.zeros, tensors.groups}),
            {static_cast<int>(scheme.bits), group,
             scheme.isSymmetric ? GroupRule::Symmetric : GroupRule::Zero}),
        isPacked(scheme.format->isPacked),
        isOneScale(scheme.block.outputs == 0), groupCount(shape.k() / group),
        rowBytes(isPacked ? tensors.codes->shape[1] * 4 : shape.k()),
        codes(*tensors.codes), scales(*tensors.scales) {
    requireScales(scales, scheme.block, shape);
    if (tensors.zeros)
      setZeros(*tensors.zeros);
    else if (!scheme.isSymmetric)
      throw Error(name() + " is asymmetric but has no " +
                  part::needed("weight_zero_point"));
    if (tensors.groups)
      groupOfColumn = readGroups(*tensors.groups, shape.k(), groupCount);
  }

private:
  static constexpr uint8_t kSign = 0x80;

  void readCodes(int64_t first, int64_t count, uint8_t *to) const override {
    const int64_t k = shape().k();
    for (int64_t i = first; i < first + count; ++i, to += k) {
      unpackCodes(codes.bytes.data() + i * rowBytes, grouping.bits, k, to);
      if (!isPacked)
        for (int64_t j = 0; j < k; ++j)
          to[j] ^= kSign;
    }
  }

  void readNumbers(int64_t first, int64_t count, float *scale,
                   float *zero) const override {
    if (!isOneScale)
      readFloats(scales, first * groupCount, count * groupCount, scale);
    for (int64_t i = 0; i < count; ++i) {
      if (isOneScale)
        readFloats(scales, 0, 1, scale + i);
      for (int64_t j = 0; zero && j < groupCount; ++j)
        *zero++ = static_cast<float>(zeroOf(first + i, j));
    }
  }

  std::span<const int32_t> groups() const override { return groupOfColumn; }

  /// The zero point of a group. Packed zero points follow each other along the
  /// outputs: a word has the zero points of 32 / bits outputs.
  int zeroOf(int64_t output, int64_t group) const {
    if (isOneScale)
      output = 0;
    if (!isPacked)
      return zeros[output * groupCount + group] ^ kSign;
    const int64_t bit = output * grouping.bits;
    const uint8_t *word = zeros + (bit / 32 * groupCount + group) * 4;
    return word[bit % 32 / 8] >> (bit % 8) & ((1 << grouping.bits) - 1);
  }

  void setZeros(const StoredTensor &tensor) {
    const int64_t outputs = isOneScale ? 1 : shape().outputs();
    requireType(tensor, isPacked ? "I32" : "I8");
    requireShape(tensor,
                 {isPacked ? ceilDiv(outputs * grouping.bits, 32) : outputs,
                  groupCount});
    zeros = tensor.bytes.data();
    if (grouping.rule != GroupRule::Symmetric)
      return;
    for (int64_t i = 0; i < outputs; ++i)
      for (int64_t j = 0; j < groupCount; ++j)
        if (zeroOf(i, j) != grouping.middle())
          throw Error(describeTensor(tensor) +
                      " has a zero point other than that of symmetric weights");
  }

  const bool isPacked;
  /// Whether all outputs share a scale.
  const bool isOneScale;
  const int64_t groupCount, rowBytes;
  const StoredTensor codes, scales;
  const uint8_t *zeros = nullptr;
  std::vector<int32_t> groupOfColumn;
};
} // namespace

static WeightSourcePtr makeIntegers(const IntegerTensors &tensors,
                                    const WeightShape &shape,
                                    const CompressedScheme &scheme) {
  const int64_t columns = scheme.block.columns;
  const int64_t group =
      groupSizeOf(*tensors.codes, columns == 0 ? -1 : columns, shape.k());
  return std::make_shared<IntegerSource>(tensors, shape, scheme, group);
}

//===----------------------------------------------------------------------===//
// The forms
//===----------------------------------------------------------------------===//

/// The sizes that weight_shape has.
static WeightShape readShape(const StoredTensor &tensor) {
  requireType(tensor, "I64");
  requireShape(tensor, {2});
  int64_t sizes[2];
  std::memcpy(sizes, tensor.bytes.data(), sizeof(sizes));
  for (const int64_t size : sizes)
    if (size < 1 || size > INT32_MAX)
      throw Error(describeTensor(tensor) + " has the size " +
                  part::found(size) + " when " + part::needed("1 to 2^31 - 1") +
                  " is needed");
  return {{sizes[0], sizes[1]}};
}

namespace {
class CompressedPackedForm final : public CompressedTensorsForm {
public:
  using CompressedTensorsForm::CompressedTensorsForm;

  WeightSourcePtr make(WeightTensors tensors) const override {
    const StoredTensor &codes = *tensors[0], &scales = *tensors[1];
    const CompressedScheme &scheme = schemeOf(codes, /*isPacked=*/true);
    if (scheme.isFloat) {
      requireMatrix(codes, "U8");
      return makeMxfp4(codes, scales, {{codes.shape[0], codes.shape[1] * 2}},
                       "compressed-tensors mxfp4");
    }
    requireMatrix(codes, "I32");
    WeightShape shape{{codes.shape[0], codes.shape[1] * 32 / scheme.bits}};
    if (tensors[2])
      shape = readShape(*tensors[2]);
    requireShape(codes,
                 {shape.outputs(), ceilDiv(shape.k() * scheme.bits, 32)});
    return makeIntegers({&codes, &scales, tensors[3], tensors[4]}, shape,
                        scheme);
  }
};

class CompressedWeightForm final : public CompressedTensorsForm {
public:
  using CompressedTensorsForm::CompressedTensorsForm;

  WeightSourcePtr make(WeightTensors tensors) const override {
    const StoredTensor &weight = *tensors[0], &scales = *tensors[1];
    if (weight.type)
      return nullptr;
    const CompressedScheme &scheme = schemeOf(weight, /*isPacked=*/false);
    if (scheme.isFloat)
      return makeFloat8(weight, scales, scheme.block, "compressed-tensors FP8");
    requireMatrix(weight, "I8");
    return makeIntegers({&weight, &scales, tensors[2]}, {weight.shape}, scheme);
  }
};
} // namespace

std::unique_ptr<const WeightForm>
qwen::makeCompressedPackedForm(const JsonValue &config) {
  return std::make_unique<CompressedPackedForm>(config);
}

std::unique_ptr<const WeightForm>
qwen::makeCompressedWeightForm(const JsonValue &config) {
  return std::make_unique<CompressedWeightForm>(config);
}
