//===- MlxTest.cpp - The form of MLX --------------------------------------===//

#include "FormTensors.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

/// 2 outputs of 64 columns of `bits` bits: the code of column k of output n is
/// (n + k) % 4, and 2^bits - 1 for the last; scales and biases of the two
/// groups of an output are -0.5, 2 and 1, 3.
static FormTensors affine(int bits) {
  FormTensors tensors;
  const size_t rowBits = static_cast<size_t>(64 * bits);
  std::vector<uint8_t> bytes(2 * rowBits / 8);
  for (size_t n = 0; n < 2; ++n)
    for (size_t k = 0; k < 64; ++k)
      for (int bit = 0; bit < bits; ++bit) {
        const size_t code = k == 63 ? 255 : (n + k) % 4;
        const size_t at = n * rowBits + k * static_cast<size_t>(bits) +
                          static_cast<size_t>(bit);
        bytes[at / 8] |= static_cast<uint8_t>((code >> bit & 1) << at % 8);
      }
  tensors.set("m.weight", "U32", {2, 2 * bits}, bytes);
  tensors.set("m.scales", "F32", {2, 2}, std::vector<float>{-0.5, 2, -0.5, 2});
  tensors.set("m.biases", "F32", {2, 2}, std::vector<float>{1, 3, 1, 3});
  return tensors;
}

static std::string mlxConfig(const std::string &bits, const std::string &group,
                             const std::string &more = "") {
  return R"({"group_size": )" + group + R"(, "bits": )" + bits + more + "}";
}

TEST(Mlx, ReadsAllBits) {
  const std::pair<int, WeightFormat> formats[] = {
      {2, WeightFormat::Q4_M_32}, {3, WeightFormat::Q4_M_32},
      {4, WeightFormat::Q4_M_32}, {5, WeightFormat::Q5_M_32},
      {6, WeightFormat::Q8_0},    {8, WeightFormat::Q8_0}};
  for (const auto &[bits, format] : formats) {
    const FormTensors tensors = affine(bits);
    const WeightSourcePtr source =
        tensors.make("mlx", mlxConfig(std::to_string(bits), "32"));
    ASSERT_TRUE(source);
    EXPECT_EQ(source->form(), "MLX " + std::to_string(bits) + "-bit");
    EXPECT_EQ(source->keptFormat(), format);
    const std::vector<float> values = valuesOf(*source);
    EXPECT_EQ(values[3], 1 - 0.5f * 3);
    EXPECT_EQ(values[64 + 33], 3 + 2.0f * 2);
    EXPECT_EQ(values[127], 3 + 2.0f * static_cast<float>((1 << bits) - 1));
  }
}

TEST(Mlx, HasSettingsByModule) {
  const FormTensors tensors = affine(8);
  const std::string more =
      R"(, "m": {"group_size": 32, "bits": 8}, "n": false, "o": true)";
  EXPECT_EQ(tensors.make("mlx", mlxConfig("4", "64", more))->form(),
            "MLX 8-bit");
}

TEST(Mlx, ReadsMxfp4) {
  FormTensors tensors;
  // All codes.
  tensors.set("m.weight", "U32", {1, 4},
              std::vector<uint8_t>{0x92, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba,
                                   0xdc, 0xfe, 0, 0, 0, 0, 0, 0, 0x42});
  tensors.set("m.scales", "U8", {1, 1}, std::vector<uint8_t>{129});
  const WeightSourcePtr source =
      tensors.make("mlx", mlxConfig("4", "32", R"(, "mode": "mxfp4")"));
  EXPECT_EQ(source->form(), "MLX mxfp4");
  EXPECT_EQ(source->keptFormat(), WeightFormat::FP4);
  EXPECT_EQ(valuesOf(*source)[0], 4);
  EXPECT_EQ(valuesOf(*source)[1], -2);
  EXPECT_EQ(keptValues(*source, WeightFormat::FP4), valuesOf(*source));
  // NaN.
  tensors.set("m.scales", "U8", {1, 1}, std::vector<uint8_t>{255});
  EXPECT_NE(valuesOf(*tensors.make(
                "mlx", mlxConfig("4", "32", R"(, "mode": "mxfp4")")))[0],
            valuesOf(*source)[0]);
  // f16 holds no scale of 2^17.
  tensors.set("m.scales", "U8", {1, 1}, std::vector<uint8_t>{145});
  EXPECT_EQ(tensors.make("mlx", mlxConfig("4", "32", R"(, "mode": "mxfp4")"))
                ->keptFormat(),
            WeightFormat::Q8_0);
}

/// The experts of a layer are the matrices of tensors of three dimensions.
TEST(Mlx, ReadsExperts) {
  FormTensors tensors;
  // Two experts of one output each.
  std::vector<uint8_t> codes(64);
  for (size_t i = 0; i < 32; ++i) {
    codes[i] = i % 2 == 0 ? 0 : 0x12;
    codes[32 + i] = 0x31;
  }
  tensors.set("m.weight", "U32", {2, 1, 8}, codes);
  tensors.set("m.scales", "F32", {2, 1, 2}, std::vector<float>{1, 2, 3, 4});
  tensors.set("m.biases", "F32", {2, 1, 2}, std::vector<float>{0, 0, 5, 6});
  const WeightSourcePtr source = tensors.make("mlx", mlxConfig("4", "32"));
  EXPECT_EQ(source->shape().sizes, (std::vector<int64_t>{2, 1, 64}));
  EXPECT_EQ(source->form(), "MLX 4-bit");
  EXPECT_EQ(source->keptFormat(), WeightFormat::Q4_M_32);
  const std::vector<float> values = valuesOf(*source);
  EXPECT_EQ(values[2], 2);
  EXPECT_EQ(values[3], 1);
  EXPECT_EQ(values[64], 5 + 3);
  EXPECT_EQ(values[127], 6 + 3 * 4);

  tensors.set("m.scales", "F32", {3, 1, 2}, std::vector<float>(6));
  EXPECT_EQ(messageOf([&] { tensors.make("mlx", mlxConfig("4", "32")); }),
            "d/f: tensor \"m.scales\" has shape [3, 1, 2] when 2 matrices are "
            "needed");
  tensors.set("m.scales", "F32", {2, 2}, std::vector<float>(4));
  EXPECT_EQ(messageOf([&] { tensors.make("mlx", mlxConfig("4", "32")); }),
            "d/f: tensor \"m.scales\" has shape [2] when [1, 2] is needed");
}

TEST(Mlx, RefusesOtherTensorsAndConfigurations) {
  const auto messageWith = [](const std::string &text, auto change) {
    FormTensors tensors = affine(4);
    change(tensors);
    return messageOf([&] { tensors.make("mlx", text); });
  };
  const auto messageOfConfig = [&](const std::string &text) {
    return messageWith(text, [](FormTensors &) {});
  };
  EXPECT_EQ(messageOfConfig(mlxConfig("7", "32")),
            "c: q.bits 7 is not supported; supported are 2, 3, 4, 5, 6 and 8");
  EXPECT_EQ(messageOfConfig(mlxConfig("8", "32")),
            "d/f: tensor \"m.scales\" has shape [2, 2] when [2, 1] is needed");
  EXPECT_EQ(messageOfConfig(mlxConfig("4", "0")),
            "c: q.group_size is 0 when an integer from 1 to 2147483647 is "
            "needed");
  EXPECT_EQ(
      messageOfConfig(mlxConfig("4", "48")),
      "d/f: tensor \"m.weight\" has rows of 8 words, which are not groups "
      "of 48 columns of 4 bits");
  EXPECT_EQ(messageOfConfig(mlxConfig("4", "32", R"(, "mode": "nvfp4")")),
            "c: q.mode \"nvfp4\" is not supported; supported are affine and "
            "mxfp4");
  EXPECT_EQ(messageOfConfig(mlxConfig("4", "32", R"(, "m": 3)")),
            "c: q.m is 3 when an object, true or false is needed");
  EXPECT_EQ(messageWith(mlxConfig("4", "32"),
                        [](FormTensors &t) { t.erase("m.biases"); }),
            "d/f: tensor \"m.weight\" is affine but has no biases");
  EXPECT_EQ(messageWith(mlxConfig("4", "32"),
                        [](FormTensors &t) {
                          t.set("m.biases", "F32", {2, 1},
                                std::vector<float>(2));
                        }),
            "d/f: tensor \"m.biases\" has shape [2, 1] when [2, 2] is needed");
}
