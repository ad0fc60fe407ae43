//===- Fp8.cpp - The form of quant_method fp8 -----------------------------===//

#include "Float8.h"
#include "TensorChecks.h"

using namespace qwen;

/// Which modules are quantized, the tensors tell; activations are quantized our
/// way, and so is what a program does when it reads the file.
static constexpr const char *kFp8NoEffect[] = {
    "activation_scheme", "scale_fmt",
    "quant_method",      "modules_to_not_convert",
    "ignored_layers",    "modules_to_convert",
    "dequantize"};

/// The blocks of a file that does not tell them: the blocks that transformers
/// writes, or a scale for each output, or one for all.
static ScaleBlock blockOf(const StoredTensor &weight,
                          const StoredTensor &scale) {
  constexpr ScaleBlock kUsual = {128, 128};
  if (WeightShape{scale.shape}.values() == 1)
    return {0, 0};
  const std::vector<int64_t> &sizes = weight.shape;
  const bool isUsual =
      sizes.size() == 2 && scale.shape.front() != sizes[0] &&
      scale.shape == std::vector<int64_t>{ceilDiv(sizes[0], kUsual.outputs),
                                          ceilDiv(sizes[1], kUsual.columns)};
  return isUsual ? kUsual : ScaleBlock{1, 0};
}

namespace {
class Fp8Form final : public WeightForm {
public:
  explicit Fp8Form(const JsonValue &config) {
    passOver(config, kFp8NoEffect);
    if (const auto fmt = config.findValue("fmt");
        fmt && fmt->string() != "e4m3")
      fmt->refuse("supported is \"e4m3\"");
    if (const auto experts = config.findValue("expert_dtype");
        experts && experts->string() != "fp8")
      experts->refuse("supported is \"fp8\"");
    if (const auto size = config.findValue("weight_block_size"))
      block = readScaleBlock(*size);
  }

  WeightSourcePtr make(WeightTensors tensors) const override {
    const StoredTensor &weight = *tensors[0], &scale = *tensors[1];
    if (weight.typeName != "F8_E4M3")
      return nullptr;
    return makeFloat8(weight, scale, block ? *block : blockOf(weight, scale),
                      "FP8");
  }

private:
  std::optional<ScaleBlock> block;
};
} // namespace

std::unique_ptr<const WeightForm> qwen::makeFp8Form(const JsonValue &config) {
  return std::make_unique<Fp8Form>(config);
}
