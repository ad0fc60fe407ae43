//===- Float8Test.cpp - The form of quant_method fp8 ----------------------===//

#include "FormTensors.h"
#include "TempDir.h"

#include "qwen/Numerics/SmallFloats.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen;
using namespace qwen::test;

static constexpr char kBlocks[] =
    R"({"fmt": "e4m3", "weight_block_size": [2, 64]})";

/// 3 outputs of 96 columns, whose last blocks are smaller.
static FormTensors blocks() {
  FormTensors tensors;
  tensors.set("m.weight", "F8_E4M3", {3, 96}, std::vector<uint8_t>(288, 0xc4));
  tensors.set("m.weight_scale_inv", "F32", {2, 2},
              std::vector<float>{1, 2, 3, 0.1f});
  return tensors;
}

TEST(Float8, HasTheNumbersOfTheFormat) {
  EXPECT_EQ(e4m3ToF32(0x7e), 448);
  EXPECT_EQ(e4m3ToF32(0x81), -0x1p-9f);
  EXPECT_EQ(e4m3ToF32(0x08), 0x1p-6f);
  EXPECT_TRUE(std::signbit(e4m3ToF32(0x80)));
  EXPECT_TRUE(std::isnan(e4m3ToF32(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3ToF32(0xff)));
  EXPECT_EQ(e8m0ToF32(0), 0x1p-127f);
  EXPECT_EQ(e8m0ToF32(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(e8m0ToF32(255)));
}

TEST(Float8, ReadsBlocks) {
  const FormTensors tensors = blocks();
  const WeightSourcePtr source = tensors.make("fp8", kBlocks);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->form(), "FP8");
  EXPECT_EQ(source->keptFormat(), WeightFormat::Q8_0);
  EXPECT_EQ(source->kept(WeightFormat::Q8_0, 0, 3), 0u);
  const std::vector<float> values = valuesOf(*source);
  EXPECT_EQ(values[0], -3);
  EXPECT_EQ(values[159], -3);
  EXPECT_EQ(values[160], -6);
  EXPECT_EQ(values[192], -9);
  // Rounded once.
  EXPECT_EQ(values[287], -3 * 0.1f);
}

TEST(Float8, ReadsScalesOfOutputsAndOfAll) {
  FormTensors tensors = blocks();
  tensors.erase("m.weight_scale_inv");
  tensors.set("m.weight_scale", "F32", {3, 1}, std::vector<float>{1, 2, 4});
  EXPECT_EQ(valuesOf(*tensors.make("fp8", "{}"))[192], -12);
  tensors.set("m.weight_scale", "F32", {}, std::vector<float>{2});
  tensors.set("m.input_scale", "F32", {}, std::vector<float>{2});
  EXPECT_EQ(valuesOf(*tensors.make("fp8", "{}"))[192], -6);
}

/// The default of transformers for weight_block_size.
TEST(Float8, ReadsBlocksThatNobodyTells) {
  FormTensors tensors;
  tensors.set("m.weight", "F8_E4M3", {130, 160},
              std::vector<uint8_t>(size_t{130} * 160, 0xc4));
  tensors.set("m.weight_scale_inv", "F32", {2, 2},
              std::vector<float>{1, 2, 3, 4});
  const std::vector<float> values = valuesOf(*tensors.make("fp8", "{}"));
  EXPECT_EQ(values[127], -3);
  EXPECT_EQ(values[128], -6);
  EXPECT_EQ(values[size_t{128} * 160], -9);
  EXPECT_EQ(values.back(), -12);
}

TEST(Float8, RefusesOtherTensorsAndConfigurations) {
  const auto messageWith = [](const std::string &config, auto change) {
    FormTensors tensors = blocks();
    change(tensors);
    return messageOf([&] { tensors.make("fp8", config); });
  };
  const auto messageOfConfig = [&](const std::string &config) {
    return messageWith(config, [](FormTensors &) {});
  };
  EXPECT_EQ(messageOfConfig(R"({"fmt": "e5m2"})"),
            "c: q.fmt \"e5m2\" is not supported; supported is \"e4m3\"");
  EXPECT_EQ(messageOfConfig(R"({"expert_dtype": "fp4"})"),
            "c: q.expert_dtype \"fp4\" is not supported; supported is \"fp8\"");
  EXPECT_EQ(
      messageOfConfig(R"({"weight_block_size": [0, 128]})"),
      "c: q.weight_block_size[0] is 0 when an integer from 1 to 2147483647 "
      "is needed");
  EXPECT_EQ(messageOfConfig(R"({"weight_block_size": [1, 1, 1]})"),
            "c: q.weight_block_size is an array when an array of two sizes is "
            "needed");
  EXPECT_EQ(
      messageOfConfig(R"({"weight_block_size": [128, 128]})"),
      "d/f: tensor \"m.weight_scale_inv\" has shape [2, 2] when [1, 1] is "
      "needed");
  EXPECT_EQ(messageWith(kBlocks,
                        [](FormTensors &tensors) {
                          tensors.set("m.weight", "F8_E4M3", {288},
                                      std::vector<uint8_t>(288));
                        }),
            "d/f: tensor \"m.weight\" has shape [288] when a matrix is needed");
}
