//===- Mlx.cpp - The form of MLX ------------------------------------------===//

#include "Codes.h"
#include "Grouped.h"
#include "Mxfp4.h"
#include "TensorChecks.h"

#include <map>

using namespace qwen;

namespace {
/// How a module is quantized.
struct MlxSettings {
  int bits = 0;
  int64_t group = 0;
  bool isMxfp4 = false;
};

/// integer * scale + bias.
class AffineSource final : public GroupedSource {
public:
  AffineSource(WeightTensors tensors, const WeightShape &shape,
               const MlxSettings &settings)
      : GroupedSource(*tensors[0], "MLX", shape, storedBytesOf(tensors),
                      {settings.bits, settings.group, GroupRule::Minimum}),
        codes(*tensors[0]), scales(*tensors[1]), biases(*tensors[2]) {}

private:
  void readCodes(int64_t first, int64_t count, uint8_t *to) const override {
    const int64_t k = shape().k(), bits = grouping.bits;
    unpackCodes(codes.bytes.data() + first * k * bits / 8, bits, count * k, to);
  }

  void readNumbers(int64_t first, int64_t count, float *scale,
                   float *minimum) const override {
    const int64_t groups = shape().k() / grouping.group;
    readFloats(scales, first * groups, count * groups, scale);
    readFloats(biases, first * groups, count * groups, minimum);
  }

  const StoredTensor codes, scales, biases;
};

class MlxForm final : public WeightForm {
public:
  explicit MlxForm(const JsonValue &config) : all(readSettings(config)) {
    for (const auto &[name, value] : config.members()) {
      if (value.isObject())
        modules.emplace(name, readSettings(value));
      else if (!isSetting(name) && !value.is(true) && !value.is(false))
        value.fail("an object, true or false");
    }
  }

  WeightSourcePtr make(WeightTensors tensors) const override {
    const StoredTensor &weight = *tensors[0], &scales = *tensors[1];
    const StoredTensor *biases = tensors[2];
    const auto own = modules.find(moduleOf(weight));
    const MlxSettings &settings = own == modules.end() ? all : own->second;
    requireMatrix(weight, "U32");
    const int64_t outputs = weight.shape[0], rowBits = weight.shape[1] * 32;
    const int64_t k = rowBits / settings.bits;
    if (rowBits % settings.bits != 0 || k % settings.group != 0)
      throw Error(
          describeTensor(weight) + " has rows of " + part::found(rowBits / 32) +
          " words, which are not groups of " + part::needed(settings.group) +
          " columns of " + std::to_string(settings.bits) + " bits");
    if (settings.isMxfp4)
      return makeMxfp4(weight, scales, {{outputs, k}}, "MLX mxfp4");
    if (!biases)
      throw Error(describeTensor(weight) + " is affine but has no " +
                  part::needed("biases"));
    for (const StoredTensor *numbers : {&scales, biases}) {
      requireFloats(*numbers);
      requireShape(*numbers, {outputs, k / settings.group});
    }
    return std::make_shared<AffineSource>(tensors, WeightShape{{outputs, k}},
                                          settings);
  }

private:
  /// Keys that are not names of modules.
  static bool isSetting(std::string_view key) {
    return key == "bits" || key == "group_size" || key == "mode" ||
           key == "quant_method";
  }

  static MlxSettings readSettings(const JsonValue &value) {
    MlxSettings settings;
    if (const auto mode = value.findValue("mode")) {
      settings.isMxfp4 = mode->string() == "mxfp4";
      if (!settings.isMxfp4 && mode->string() != "affine")
        mode->refuse("supported are affine and mxfp4");
    }
    const JsonValue bits = value.at("bits"), group = value.at("group_size");
    if (settings.isMxfp4) {
      settings.bits = static_cast<int>(bits.integer(4, 4));
      settings.group = group.integer(32, 32);
      return settings;
    }
    settings.bits = static_cast<int>(bits.integer(2, 8));
    if (!canUnpack(settings.bits))
      bits.refuse("supported are 2, 3, 4, 5, 6 and 8");
    settings.group = group.integer(1, INT32_MAX);
    return settings;
  }

  const MlxSettings all;
  /// Settings that modules have of their own, by name in the file. The tensors
  /// of other modules tell whether they are quantized, which true and false
  /// say.
  std::map<std::string, MlxSettings, std::less<>> modules;
};
} // namespace

std::unique_ptr<const WeightForm> qwen::makeMlxForm(const JsonValue &config) {
  return std::make_unique<MlxForm>(config);
}
