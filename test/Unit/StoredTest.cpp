//===- StoredTest.cpp - The types of tensors in checkpoints ---------------===//
//
// quants/ggml.safetensors has random blocks of each type, and the values that
// the gguf package gives them.
//
//===----------------------------------------------------------------------===//

#include "qwen/Numerics/Stored.h"
#include "GgmlBlocks.h"
#include "NumericsRandom.h"
#include "Safetensors.h"
#include "qwen/Numerics/Kernels.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen;
namespace ref = qwen::numerics;

static const Safetensors &golden() {
  static const Safetensors file(QWEN_SOURCE_DIR
                                "/test/Inputs/quants/ggml.safetensors");
  return file;
}

TEST(Stored, DequantizesAsGgml) {
  for (StoredType type : kStoredTypes) {
    if (!isBlocks(type))
      continue;
    const std::string name(storedTypeName(type));
    const auto bytes = golden().get<uint8_t>(name + ".bytes");
    const auto values = golden().get<float>(name + ".values");
    const auto count = static_cast<int64_t>(values.size());
    ASSERT_EQ(static_cast<int64_t>(bytes.size()), storedBytes(type, count));
    std::vector<float> found(values.size());
    ref::dequantize(type, bytes.data(), count, found.data());
    // Equal bits, but for the sign of a zero.
    EXPECT_EQ(found, values) << name;
  }
}

TEST(Stored, WidensFloats) {
  const uint8_t bytes[] = {0, 0, 0xc0, 0xbf};
  float value = 0;
  ref::dequantize(StoredType::F32, bytes, 1, &value);
  EXPECT_EQ(value, -1.5F);
  ref::dequantize(StoredType::BF16, bytes + 2, 1, &value);
  EXPECT_EQ(value, -1.5F);
  ref::dequantize(StoredType::F16, bytes + 2, 1, &value);
  EXPECT_EQ(value, f16ToF32(0xbfc0));
}

/// Value `i` of output `output` of a q8_0 panel of one block.
static float valueInQ8(const std::vector<uint8_t> &panel, int64_t output,
                       int64_t i) {
  uint16_t scale;
  std::memcpy(&scale, panel.data() + output * 2, 2);
  const int64_t at = 32 + (i / 4 * kPanelOutputs + output) * 4 + i % 4;
  return static_cast<float>(
             static_cast<int8_t>(panel[static_cast<size_t>(at)])) *
         f16ToF32(scale);
}

TEST(Stored, KeepsIntegersInQ8) {
  std::vector<StoredType> kept;
  for (StoredType type : kStoredTypes) {
    const bool small = infoOf(type).values == 32;
    const auto bytes = small ? golden().get<uint8_t>(
                                   std::string(storedTypeName(type)) + ".bytes")
                             : std::vector<uint8_t>(512);
    if (!ref::canKeep(WeightFormat::Q8_0, type, bytes.data(),
                      infoOf(type).values))
      continue;
    kept.push_back(type);
    std::vector<uint8_t> panel(
        static_cast<size_t>(panelBytes(WeightFormat::Q8_0, 32)));
    ref::keepOutput(WeightFormat::Q8_0, type, bytes.data(), 32, 5,
                    panel.data());
    float values[32];
    ref::dequantize(type, bytes.data(), 32, values);
    for (int64_t i = 0; i < 32; ++i)
      EXPECT_EQ(valueInQ8(panel, 5, i), values[i]) << storedTypeName(type);
  }
  EXPECT_EQ(kept,
            (std::vector{StoredType::Q4_0, StoredType::Q5_0, StoredType::Q8_0,
                         StoredType::IQ4_NL, StoredType::MXFP4}));
}

/// A panel of the numbers, and one of the blocks that they are encoded to, are
/// the same bytes.
template <typename Block, typename EncodeFn>
static void expectSamePanels(WeightFormat format, StoredType type,
                             EncodeFn encode) {
  constexpr int64_t kBlocks = 3, kK = kBlocks * 32;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kPanelOutputs * kK);
  for (float &value : values)
    value = normal(random);
  const float *outputs[kPanelOutputs];
  std::vector<uint8_t> expected(static_cast<size_t>(panelBytes(format, kK)));
  std::vector<uint8_t> found = expected;
  for (int64_t output = 0; output < kPanelOutputs; ++output) {
    outputs[output] = values.data() + output * kK;
    Block blocks[kBlocks];
    for (int64_t i = 0; i < kBlocks; ++i)
      ASSERT_EQ(encode(outputs[output] + i * 32, blocks[i]),
                ref::EncodeStatus::Ok);
    const auto *bytes = reinterpret_cast<const uint8_t *>(blocks);
    ASSERT_TRUE(ref::canKeep(format, type, bytes, kK));
    ref::keepOutput(format, type, bytes, kK, output, found.data());
  }
  ASSERT_EQ(ref::packPanel(format, outputs, kK, expected.data()),
            ref::EncodeStatus::Ok);
  EXPECT_EQ(found, expected);
}

TEST(Stored, KeepsWhatTheEncodersGive) {
  expectSamePanels<BlockQ4_0>(WeightFormat::Q4_0, StoredType::Q4_0, encodeQ4_0);
  expectSamePanels<BlockQ8_0>(WeightFormat::Q8_0, StoredType::Q8_0, encodeQ8_0);
  expectSamePanels<BlockQ4_1>(WeightFormat::Q4_M_32, StoredType::Q4_1,
                              encodeQ4_1);
  expectSamePanels<BlockQ5_0>(WeightFormat::Q5_0, StoredType::Q5_0, encodeQ5_0);
  expectSamePanels<BlockQ5_1>(WeightFormat::Q5_M_32, StoredType::Q5_1,
                              encodeQ5_1);
  expectSamePanels<BlockQ4_0>(WeightFormat::NL4, StoredType::IQ4_NL,
                              encodeIQ4_NL);
}

TEST(Stored, KeepsSubBlocks) {
  for (StoredType type : kStoredTypes) {
    const WeightFormat format = infoOf(type).kept;
    if (weightBlock(format) != 256)
      continue;
    const std::string name(storedTypeName(type));
    const auto bytes = golden().get<uint8_t>(name + ".bytes");
    const auto expected = golden().get<float>(name + ".values");
    const auto k = static_cast<int64_t>(expected.size());
    ASSERT_TRUE(ref::canKeep(format, type, bytes.data(), k)) << name;
    // Every bit of the output is set, and no other.
    std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, k)));
    for (int64_t output : {4, 5, 6}) {
      const std::vector<uint8_t> zeros(bytes.size());
      ref::keepOutput(format, type, output == 5 ? bytes.data() : zeros.data(),
                      k, output, panel.data());
    }
    std::vector<float> values(expected.size());
    ref::reference<KernelOp::Embed>(kernelFormat(format))(panel.data(), 5, k,
                                                          values.data());
    EXPECT_EQ(values, expected) << name;
    ref::reference<KernelOp::Embed>(kernelFormat(format))(panel.data(), 4, k,
                                                          values.data());
    EXPECT_EQ(values, std::vector<float>(expected.size())) << name;
    EXPECT_FALSE(ref::canKeep(WeightFormat::Q8_0, type, bytes.data(), k));
  }
}

TEST(Stored, KeepsOnlyWhatAFormatHolds) {
  std::vector<uint8_t> bytes(64);
  for (WeightFormat format :
       {WeightFormat::F32, WeightFormat::BF16, WeightFormat::Q4_G128})
    EXPECT_FALSE(ref::canKeep(format, StoredType::Q4_0, bytes.data(), 32));
  EXPECT_FALSE(
      ref::canKeep(WeightFormat::Q4_0, StoredType::IQ4_NL, bytes.data(), 32));
  EXPECT_TRUE(
      ref::canKeep(WeightFormat::Q4_0, StoredType::Q4_0, bytes.data(), 32));
  // Only one of them has a minimum.
  EXPECT_FALSE(
      ref::canKeep(WeightFormat::Q8_0, StoredType::Q4_1, bytes.data(), 32));
  EXPECT_FALSE(
      ref::canKeep(WeightFormat::Q4_M_32, StoredType::Q4_0, bytes.data(), 32));
  EXPECT_FALSE(
      ref::canKeep(WeightFormat::Q4_M_32, StoredType::Q5_1, bytes.data(), 32));
  // A minimum that is infinite, a scale that is NaN, and one below the least of
  // f16.
  bytes[3] = 0x7c;
  EXPECT_FALSE(
      ref::canKeep(WeightFormat::Q4_M_32, StoredType::Q4_1, bytes.data(), 32));
  bytes[1] = 0x7e;
  EXPECT_FALSE(
      ref::canKeep(WeightFormat::Q4_0, StoredType::Q4_0, bytes.data(), 32));
  bytes[0] = 60;
  EXPECT_FALSE(
      ref::canKeep(WeightFormat::Q8_0, StoredType::MXFP4, bytes.data(), 32));
  bytes[0] = 128 - 24;
  EXPECT_TRUE(
      ref::canKeep(WeightFormat::Q8_0, StoredType::MXFP4, bytes.data(), 32));
}

TEST(Stored, ExportsWhatItKeeps) {
  std::vector<StoredType> exported;
  for (StoredType type : kStoredTypes) {
    if (!isBlocks(type) || !hasNumbersOfKept(type))
      continue;
    exported.push_back(type);
    const WeightFormat format = infoOf(type).kept;
    EXPECT_EQ(exportedType(format), type);
    const std::string name(storedTypeName(type));
    const auto bytes = golden().get<uint8_t>(name + ".bytes");
    const auto k = static_cast<int64_t>(bytes.size()) / infoOf(type).bytes *
                   infoOf(type).values;
    ASSERT_TRUE(ref::canKeep(format, type, bytes.data(), k)) << name;
    std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, k)));
    ref::keepOutput(format, type, bytes.data(), k, 5, panel.data());
    std::vector<uint8_t> found(bytes.size(), 255);
    ASSERT_TRUE(ref::exportOutput(format, panel.data(), k, 5, found.data()));
    EXPECT_EQ(found, bytes) << name;
  }
  EXPECT_EQ(exported,
            (std::vector{StoredType::Q4_0, StoredType::Q4_1, StoredType::Q5_0,
                         StoredType::Q5_1, StoredType::Q8_0, StoredType::Q4_K,
                         StoredType::Q5_K, StoredType::Q6_K, StoredType::IQ4_NL,
                         StoredType::IQ4_XS}));
}

/// The values of output 5 of a panel, as the embedding reads them, and as an
/// exported type has them.
static void expectExported(WeightFormat format, int64_t k,
                           const std::vector<uint8_t> &panel) {
  std::vector<float> expected(static_cast<size_t>(k)), found = expected;
  ref::reference<KernelOp::Embed>(kernelFormat(format))(panel.data(), 5, k,
                                                        expected.data());
  const StoredType type = exportedType(format);
  std::vector<uint8_t> bytes(static_cast<size_t>(storedBytes(type, k)));
  ASSERT_TRUE(ref::exportOutput(format, panel.data(), k, 5, bytes.data()));
  ref::dequantize(type, bytes.data(), k, found.data());
  EXPECT_EQ(found, expected) << weightFormatName(format);
}

TEST(Stored, ExportsTheValuesOfAllFormats) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (WeightFormat format : kWeightFormats) {
    // With a last block that is shorter, where there may be one.
    const int64_t k =
        512 + (infoOf(exportedType(format)).values == 256 ? 0 : 32);
    std::vector<float> values(static_cast<size_t>(k));
    for (float &value : values)
      value = normal(random);
    const float *outputs[kPanelOutputs] = {};
    outputs[5] = values.data();
    std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, k)));
    ASSERT_EQ(ref::packPanel(format, outputs, k, panel.data()),
              ref::EncodeStatus::Ok);
    if (!scalesOf(format).hasZero)
      expectExported(format, k, panel);
  }
}

TEST(Stored, ExportsIntegerZeroPoints) {
  for (WeightFormat format :
       {WeightFormat::Q4_Z_32, WeightFormat::Q4_Z_64, WeightFormat::Q4_Z_128}) {
    constexpr int64_t kK = 160;
    const auto panelOf = [&](float zero) {
      ref::WeightBlock blocks[5] = {};
      for (ref::WeightBlock &block : blocks) {
        block.scale = f32ToF16(0.7F);
        block.minimum = f32ToF16(zero);
        for (uint8_t i = 0; i < 128; ++i)
          block.codes[i] = i % 16;
      }
      std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, kK)));
      ref::putOutput(format, blocks, kK, 5, panel.data());
      return panel;
    };
    for (float zero : {0.0F, 7.0F, 8.0F, 16.0F})
      expectExported(format, kK, panelOf(zero));
    std::vector<uint8_t> bytes(1024);
    for (float zero : {-1.0F, 7.5F, 17.0F, NAN})
      EXPECT_FALSE(
          ref::exportOutput(format, panelOf(zero).data(), kK, 5, bytes.data()));
  }
}

TEST(Stored, SumsTheErrorsOfEncoders) {
  // 0.5 becomes 1 of the scale 1, which the value 127 gives.
  std::vector<float> values(32, 0.5F);
  values[3] = 127;
  const float *outputs[kPanelOutputs] = {nullptr, values.data()};
  std::vector<uint8_t> panel(4096);
  ref::EncodeError errors[kPanelOutputs];
  ASSERT_EQ(
      ref::packPanel(WeightFormat::Q8_0, outputs, 32, panel.data(), errors),
      ref::EncodeStatus::Ok);
  EXPECT_EQ(errors[0].values, 0);
  EXPECT_EQ(errors[1].values, 127.0 * 127.0 + 31 * 0.25);
  EXPECT_EQ(errors[1].errors, 31 * 0.25);
  for (WeightFormat format : {WeightFormat::F32, WeightFormat::BF16}) {
    ref::EncodeError exact[kPanelOutputs];
    ASSERT_EQ(ref::packPanel(format, outputs, 32, panel.data(), exact),
              ref::EncodeStatus::Ok);
    EXPECT_EQ(exact[1].errors, 0);
  }
}
