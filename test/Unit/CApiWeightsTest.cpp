//===- CApiWeightsTest.cpp - The formats of weights by the C interface ----===//

#include "qwenrt.h"

#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace qwen;

namespace {
/// The parts of a matrix, as large as the header says.
struct Parts {
  Parts(const qwen_weight_format &format, int64_t rows, int64_t columns) {
    const auto perWeight = static_cast<size_t>(rows * columns);
    const auto per = [&](int64_t step) {
      return static_cast<size_t>(rows * ((columns + step - 1) / step));
    };
    values.assign(perWeight, NAN);
    to.size = sizeof(to);
    to.values = values.data();
    if (format.is_float)
      return;
    const auto take = [](auto &part, auto &pointer, bool has, size_t size) {
      if (!has)
        return;
      part.resize(size);
      pointer = part.data();
    };
    take(codes, to.codes, true, perWeight);
    take(integers, to.integers, true, perWeight);
    take(scales, to.scales, true, per(format.block));
    take(minimums, to.minimums, format.has_minimums, per(format.block));
    take(zeros, to.zero_points, format.has_zero_points, per(format.block));
    if (!format.sub_block)
      return;
    take(subScales, to.sub_scales, true, per(format.sub_block));
    take(subMinimums, to.sub_minimums, format.has_sub_minimums,
         per(format.sub_block));
  }

  qwen_weight_parts to = {};
  std::vector<uint8_t> codes;
  std::vector<int8_t> integers, subScales, subMinimums;
  std::vector<float> values, scales, minimums, zeros;
};
} // namespace

/// Weights that fill no block of 128 or 256, and no panel.
static constexpr int64_t kRows = 17, kColumns = 416;

static std::vector<float> weights() {
  std::vector<float> all;
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    all.push_back(static_cast<float>(std::sin(static_cast<double>(i * i))) *
                  static_cast<float>(i % 7 + 1));
  return all;
}

/// The value that the header's formula makes of a weight's parts.
static float valueOf(const qwen_weight_format &format, const Parts &parts,
                     int64_t row, int64_t column) {
  const auto at = [&](int64_t step) {
    return static_cast<size_t>(row * ((kColumns + step - 1) / step) +
                               column / step);
  };
  const auto integer = static_cast<float>(parts.integers[at(1)]);
  const float scale = parts.scales[at(format.block)];
  if (format.has_zero_points)
    return (integer - parts.zeros[at(format.block)]) * scale;
  const float sub =
      format.sub_block
          ? static_cast<float>(parts.subScales[at(format.sub_block)])
          : 1.0f;
  const float value = integer * (sub * scale);
  if (!format.has_minimums)
    return value;
  const float minimum = parts.minimums[at(format.block)];
  return value +
         (format.has_sub_minimums
              ? static_cast<float>(parts.subMinimums[at(format.sub_block)]) *
                    minimum
              : minimum);
}

TEST(CApiWeights, PartsMakeTheValuesInEachFormat) {
  const std::vector<float> x = weights();
  size_t index = 0;
  qwen_weight_format format = {};
  format.size = sizeof(format);
  for (; qwen_weight_format_at(index, &format) == 1; ++index) {
    SCOPED_TRACE(format.name);
    Parts parts(format, kRows, kColumns);
    ASSERT_EQ(
        qwen_quantize_rows(format.name, x.data(), kRows, kColumns, &parts.to),
        0)
        << qwen_last_error();
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const auto at = static_cast<size_t>(i);
      const float value = parts.values[at];
      if (!format.is_float)
        ASSERT_EQ(value, valueOf(format, parts, i / kColumns, i % kColumns))
            << i;
      errors += (value - x[at]) * (value - x[at]);
      squares += x[at] * x[at];
    }
    // 4 bits lose about a hundredth.
    EXPECT_LE(errors / squares, format.bits == 32 ? 0
                                : format.bits > 4 ? 0.002
                                                  : 0.02);
  }
  EXPECT_EQ(index, std::size(kWeightFormats));
}

TEST(CApiWeights, AreTheNumbersOfTheEncoder) {
  const std::vector<float> x = weights();
  Parts parts({.size = 0,
               .bits = 6,
               .name = "",
               .is_float = 0,
               .block = 256,
               .sub_block = 16,
               .has_minimums = 0,
               .has_zero_points = 0,
               .has_sub_minimums = 0},
              kRows, kColumns);
  ASSERT_EQ(qwen_quantize_rows("q6_k", x.data(), kRows, kColumns, &parts.to),
            0);
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t begin = 0; begin < kColumns; begin += 256) {
      const int64_t count = std::min<int64_t>(256, kColumns - begin);
      numerics::WeightBlock block;
      ASSERT_EQ(numerics::encode<numerics::Encoder::Search6>(
                    x.data() + row * kColumns + begin, count, block),
                numerics::EncodeStatus::Ok);
      EXPECT_EQ(parts.scales[static_cast<size_t>(row * 2 + begin / 256)],
                f16ToF32(block.scale));
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(row * kColumns + begin + i);
        ASSERT_EQ(parts.codes[at], block.codes[i]);
        ASSERT_EQ(parts.integers[at], block.codes[i] - 32);
        ASSERT_EQ(parts.subScales[at / 16],
                  static_cast<int8_t>(block.subIntegers[0][i / 16]));
      }
    }
}

TEST(CApiWeights, SayWhatIsWrong) {
  // With the scale 1.
  std::vector<float> x(64, 127), out(64);
  qwen_weight_parts parts = {};
  parts.size = sizeof(parts);
  parts.values = out.data();
  const auto refusal = [&](const char *format, int64_t rows, int64_t columns) {
    EXPECT_EQ(qwen_quantize_rows(format, x.data(), rows, columns, &parts), -1);
    return std::string(qwen_last_error());
  };
  EXPECT_TRUE(refusal("q4\n", 1, 32)
                  .starts_with("qwen_quantize_rows: format is \"q4\\n\" when "
                               "f32, bf16, "));
  EXPECT_EQ(refusal("q4_0", 1, 33), "qwen_quantize_rows: columns is 33 when a "
                                    "multiple of 32 is needed");
  EXPECT_EQ(refusal("q4_0", -1, 32),
            "qwen_quantize_rows: there are -1 rows of 32 weights");
  EXPECT_EQ(refusal("q4_0", INT64_MAX / 4, 64),
            "qwen_quantize_rows: there are 2305843009213693951 rows of 64 "
            "weights");
  x[40] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refusal("q8_0", 1, 64),
            "qwen_quantize_rows: the matrix has a value that is not finite");
  EXPECT_EQ(qwen_quantize_rows("q8_0", x.data(), 1, 32, &parts), 0);
  EXPECT_EQ(out[0], 127);
  EXPECT_EQ(qwen_quantize_rows("q8_0", nullptr, 0, 32, &parts), 0);
  EXPECT_EQ(qwen_quantize_rows("q8_0", nullptr, 1, 32, &parts), -1);
  parts.scales = out.data();
  EXPECT_EQ(refusal("f32", 1, 32), "qwen_quantize_rows: f32 has no scales");
  parts.scales = nullptr;
  parts.minimums = out.data();
  EXPECT_EQ(refusal("q4_z_32", 1, 32),
            "qwen_quantize_rows: q4_z_32 has no minimums");
  parts.minimums = nullptr;
  int8_t sub = 0;
  parts.sub_minimums = &sub;
  EXPECT_EQ(refusal("q6_k", 1, 32),
            "qwen_quantize_rows: q6_k has no sub_minimums");
}
