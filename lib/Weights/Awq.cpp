//===- Awq.cpp - Weights of AWQ -------------------------------------------===//
//
// Lin et al., "AWQ: Activation-aware Weight Quantization for On-Device LLM
// Compression and Acceleration", 2024. AutoAWQ writes the tensors.
//
//===----------------------------------------------------------------------===//

#include "Awq.h"

#include "Codes.h"
#include "Grouped.h"
#include "TensorChecks.h"

using namespace qwen;

/// Codes of 4 bits in a word.
static constexpr int64_t kInWord = 8;
/// The places, in a word of "gemm", of the codes of 8 outputs.
static constexpr int64_t kPlaces[kInWord] = {0, 4, 1, 5, 2, 6, 3, 7};

namespace {
/// The base of both layouts. A row of zero points has `words` words.
class AwqSource : public GroupedSource {
public:
  AwqSource(WeightTensors tensors, std::string_view form, WeightShape shape,
            Grouping grouping)
      : GroupedSource(*tensors[0], form, std::move(shape),
                      storedBytesOf(tensors), grouping),
        codes(tensors[0]->bytes), scales(*tensors[1]), zeros(tensors[2]->bytes),
        words(tensors[2]->shape[1]) {}

protected:
  const std::span<const uint8_t> codes;
  const StoredTensor scales;
  const std::span<const uint8_t> zeros;
  const int64_t words;
};

/// qweight [K][N / 8], qzeros [K / group][N / 8], scales [K / group][N].
class AwqColumns final : public AwqSource {
public:
  using AwqSource::AwqSource;

private:
  void readCodes(int64_t first, int64_t count, uint8_t *to) const override {
    const int64_t k = shape().k();
    for (int64_t column = 0; column < k; ++column)
      for (int64_t i = 0; i < count; ++i)
        to[i * k + column] = at(codes, column, first + i);
  }

  void readNumbers(int64_t first, int64_t count, float *scale,
                   float *offset) const override {
    const int64_t groupCount = shape().k() / grouping.group;
    float row[kPanelOutputs];
    for (int64_t group = 0; group < groupCount; ++group) {
      readFloats(scales, group * words * kInWord + first, count, row);
      for (int64_t i = 0; i < count; ++i) {
        scale[i * groupCount + group] = row[i];
        if (offset)
          offset[i * groupCount + group] = at(zeros, group, first + i);
      }
    }
  }

  /// The 4 bits of `output` in a row of words.
  uint8_t at(std::span<const uint8_t> rows, int64_t row, int64_t output) const {
    const uint32_t word = wordAt(rows, row * words + output / kInWord);
    return static_cast<uint8_t>(word >> (4 * kPlaces[output % kInWord]) & 15);
  }
};

/// qweight [N][K / 8], qzeros [N][words], scales [N][8 words]: rows of zero
/// points and scales are padded.
class AwqRows final : public AwqSource {
public:
  using AwqSource::AwqSource;

private:
  void readCodes(int64_t first, int64_t count, uint8_t *to) const override {
    const int64_t k = shape().k();
    unpackCodes(codes.data() + first * k / 2, 4, count * k, to);
  }

  void readNumbers(int64_t first, int64_t count, float *scale,
                   float *offset) const override {
    const int64_t groupCount = shape().k() / grouping.group;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (first + i) * words;
      readFloats(scales, row * kInWord, groupCount, scale + i * groupCount);
      for (int64_t group = 0; offset && group < groupCount; ++group)
        offset[i * groupCount + group] = static_cast<float>(
            wordAt(zeros, row + group / kInWord) >> (group % kInWord * 4) & 15);
    }
  }
};
} // namespace

/// Throws Error unless all zero points are 8.
static void checkMiddle(const StoredTensor &zeros) {
  for (int64_t i = 0; i < std::ssize(zeros.bytes) / 4; ++i)
    if (wordAt(zeros.bytes, i) != 0x88888888)
      throw Error(describeTensor(zeros) + " has other zero points than " +
                  part::needed(8) +
                  " when its quantization is symmetric (sym)");
}

WeightSourcePtr qwen::makeAwqWeight(WeightTensors tensors,
                                    const AwqSettings &settings,
                                    std::string_view form) {
  const StoredTensor &codes = *tensors[0], &scales = *tensors[1];
  const StoredTensor &zeros = *tensors[2];
  requireMatrix(codes, "I32");
  requireFloats(scales);
  requireType(zeros, "I32");
  int64_t outputs = codes.shape[0], k = codes.shape[1] * kInWord;
  if (!settings.hasRows) {
    k = codes.shape[0];
    outputs = codes.shape[1] * kInWord;
  }
  const int64_t group = groupSizeOf(codes, settings.group, k),
                groups = k / group;
  const Grouping grouping = {
      4, group, settings.isSymmetric ? GroupRule::Symmetric : GroupRule::Zero};
  if (!settings.hasRows) {
    requireShape(scales, {groups, outputs});
    requireShape(zeros, {groups, outputs / kInWord});
    if (settings.isSymmetric)
      checkMiddle(zeros);
    return std::make_shared<AwqColumns>(tensors, form,
                                        WeightShape{{outputs, k}}, grouping);
  }
  // Rows of words of zero points are padded for threads that share them.
  const int64_t step = group >= 128 ? 1 : group == 64 ? 2 : 4;
  const int64_t words = alignTo(ceilDiv(groups, kInWord), step);
  requireShape(scales, {outputs, words * kInWord});
  requireShape(zeros, {outputs, words});
  return std::make_shared<AwqRows>(tensors, form, WeightShape{{outputs, k}},
                                   grouping);
}

namespace {
class AwqForm final : public WeightForm {
public:
  explicit AwqForm(const JsonValue &config)
      : settings{parseGroupSize(config.at("group_size"))} {
    if (const JsonValue bits = config.at("bits"); bits.integer(1, 32) != 4)
      bits.refuse("supported is 4");
    const JsonValue version = config.at("version");
    settings.hasRows = version.string() == "gemv" || version.string() == "GEMV";
    if (!settings.hasRows && version.string() != "gemm" &&
        version.string() != "GEMM")
      version.refuse("supported are \"gemm\" and \"gemv\"");
    if (const auto zeros = config.findValue("zero_point");
        zeros && !zeros->boolean())
      zeros->refuse("supported is true");
    // The tensors tell which modules have integers.
    if (const auto modules = config.findValue("modules_to_not_convert"))
      for (const JsonValue &module : modules->elements())
        module.string();
    passOver(config, kNoEffect);
  }

  WeightSourcePtr make(WeightTensors tensors) const override {
    return makeAwqWeight(tensors, settings, "AWQ");
  }

private:
  /// Which code runs the integers.
  static constexpr const char *kNoEffect[] = {
      "quant_method",    "backend",          "do_fuse",
      "modules_to_fuse", "fuse_max_seq_len", "exllama_config"};

  AwqSettings settings;
};
} // namespace

std::unique_ptr<const WeightForm> qwen::makeAwqForm(const JsonValue &config) {
  return std::make_unique<AwqForm>(config);
}
