//===- SubBlocksTest.cpp - Encoders of formats with sub-blocks ------------===//

#include "NumericsRandom.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace qwen;
namespace ref = qwen::numerics;

/// The error of `values`, encoded in `format`, as a share of their rms.
static double errorOf(WeightFormat format, const std::vector<float> &values) {
  const float *rows[kPanelOutputs] = {nullptr, values.data()};
  const auto k = static_cast<int64_t>(values.size());
  std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, k)), 0xee);
  ref::EncodeError errors[kPanelOutputs];
  EXPECT_EQ(ref::packPanel(format, rows, k, panel.data(), errors),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(values.size());
  const auto embed = ref::reference<KernelOp::Embed>(kernelFormat(format));
  embed(panel.data(), 1, k, decoded.data());
  ref::EncodeError own;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = double{values[i]} - double{decoded[i]};
    own.errors += error * error;
    own.values += double{values[i]} * double{values[i]};
  }
  EXPECT_NEAR(errors[1].errors, own.errors, 1e-3 * own.errors);
  embed(panel.data(), 0, k, decoded.data());
  EXPECT_EQ(decoded, std::vector<float>(values.size()));
  return own.errors == 0 ? 0 : std::sqrt(own.errors / own.values);
}

TEST(Encode, SubBlocksHaveSmallErrors) {
  const int64_t k = 608; // blocks of 256, 256 and 96
  std::vector<float> values = Random(5).values(k);
  // Sub-blocks of other magnitudes, and one of zeros.
  for (size_t i = 0; i < values.size(); ++i)
    values[i] *= i / 32 % 8 == 3 ? 0.0f : 1.0f + static_cast<float>(i / 16 % 3);
  EXPECT_LT(errorOf(WeightFormat::Q6_K, values), 0.02);
  EXPECT_LT(errorOf(WeightFormat::Q4_K, values), 0.08);
  EXPECT_LT(errorOf(WeightFormat::Q5_K, values), 0.04);
  EXPECT_LT(errorOf(WeightFormat::NL4_XS, values), 0.09);
  // Only positive values, constants and the least ones.
  for (float &value : values)
    value = 3.0f + std::fabs(value);
  EXPECT_LT(errorOf(WeightFormat::Q6_K, values), 0.02);
  EXPECT_LT(errorOf(WeightFormat::Q5_K, values), 0.04);
  for (WeightFormat format : {WeightFormat::Q6_K, WeightFormat::Q4_K,
                              WeightFormat::Q5_K, WeightFormat::NL4_XS}) {
    EXPECT_EQ(errorOf(format, std::vector<float>(96)), 0);
    EXPECT_LT(errorOf(format, std::vector<float>(96, -2.5f)), 1e-3);
    EXPECT_LE(errorOf(format, std::vector<float>(32, 0x1p-60f)), 1);
    for (const auto &[value, status] :
         {std::pair{kNaN, ref::EncodeStatus::NotFinite},
          {-kInf, ref::EncodeStatus::NotFinite},
          {std::numeric_limits<float>::max(), ref::EncodeStatus::ScaleOverflow},
          {0x1p29f, ref::EncodeStatus::ScaleOverflow}}) {
      std::vector<float> extreme(32);
      extreme[7] = value;
      const float *rows[kPanelOutputs] = {extreme.data()};
      std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, 32)));
      EXPECT_EQ(ref::packPanel(format, rows, 32, panel.data()), status);
    }
  }
  // The scale fits, the minimum does not.
  std::vector<float> low(32, -0x1p22f);
  const float *rows[kPanelOutputs] = {low.data()};
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::Q4_K, 32)));
  low[3] = 0;
  EXPECT_EQ(ref::packPanel(WeightFormat::Q4_K, rows, 32, panel.data()),
            ref::EncodeStatus::MinimumOverflow);
}
