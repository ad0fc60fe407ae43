//===- WeightsTest.cpp - Encoded weights and their panels -----------------===//

#include "GgmlBlocks.h"
#include "NumericsRandom.h"
#include "Safetensors.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;
namespace ref = qwen::numerics;

/// Compares each encoded block of the golden rows with the bytes of `name`.
template <typename Block>
static void expectGgufsBytes(const char *name,
                             ref::EncodeStatus (*encode)(const float *,
                                                         Block &)) {
  const Safetensors golden(inputs("quants/blocks.safetensors"));
  const std::vector<float> rows = golden.get<float>("rows");
  const std::vector<uint8_t> want = golden.get<uint8_t>(name);
  ASSERT_EQ(rows.size() / 32 * sizeof(Block), want.size());
  ASSERT_GT(rows.size(), 3000u);
  for (size_t i = 0; i < rows.size() / 32; ++i) {
    Block block;
    ASSERT_EQ(encode(&rows[i * 32], block), ref::EncodeStatus::Ok);
    ASSERT_EQ(std::memcmp(&block, &want[i * sizeof(block)], sizeof(block)), 0)
        << "block " << i;
  }
}

/// Expects that `encode` refuses values that are not finite and a block with
/// `overflow`, and takes one with `most`.
template <typename Block>
static void expectRefusals(ref::EncodeStatus (*encode)(const float *, Block &),
                           float most, float overflow) {
  Block block;
  for (float bad : {kNaN, kInf, -kInf}) {
    float x[32] = {1.0f};
    x[31] = bad;
    EXPECT_EQ(encode(x, block), ref::EncodeStatus::NotFinite);
  }
  float x[32] = {most};
  EXPECT_EQ(encode(x, block), ref::EncodeStatus::Ok);
  x[0] = overflow;
  EXPECT_EQ(encode(x, block), ref::EncodeStatus::ScaleOverflow);
}

TEST(Encode, Q4_0GivesGgufsBytes) { expectGgufsBytes("Q4_0", encodeQ4_0); }

TEST(Encode, Q4_0Refuses) {
  expectRefusals(encodeQ4_0, 8 * 65519.0f, 8 * 65520.0f);
}

TEST(Encode, Q4_1GivesGgufsBytes) {
  const Safetensors golden(inputs("quants/blocks.safetensors"));
  const std::vector<float> rows = golden.get<float>("rows");
  const std::vector<uint8_t> want = golden.get<uint8_t>("Q4_1");
  ASSERT_EQ(rows.size() / 32 * sizeof(BlockQ4_1), want.size());
  for (size_t i = 0; i < rows.size() / 32; ++i) {
    BlockQ4_1 block;
    ASSERT_EQ(encodeQ4_1(&rows[i * 32], block), ref::EncodeStatus::Ok);
    ASSERT_EQ(std::memcmp(&block, &want[i * sizeof(block)], sizeof(block)), 0)
        << "block " << i;
  }
}

TEST(Encode, Q4_1Refuses) {
  BlockQ4_1 block;
  float x[32] = {15 * 65519.0f};
  EXPECT_EQ(encodeQ4_1(x, block), ref::EncodeStatus::Ok);
  x[0] = 15 * 65520.0f;
  EXPECT_EQ(encodeQ4_1(x, block), ref::EncodeStatus::ScaleOverflow);
  x[0] = -65520.0f;
  EXPECT_EQ(encodeQ4_1(x, block), ref::EncodeStatus::MinimumOverflow);
  EXPECT_EQ(ref::encodeStatusMessage(ref::EncodeStatus::MinimumOverflow),
            "has a block whose minimum overflows f16");
  x[31] = kNaN;
  EXPECT_EQ(encodeQ4_1(x, block), ref::EncodeStatus::NotFinite);
}

TEST(Encode, Q4_1HoldsConstantsAndSubnormals) {
  // f16 holds the values themselves, as minimums.
  for (float value : {0.0f, -3.0f, 0x1p-24f}) {
    float x[32];
    std::ranges::fill(x, value);
    BlockQ4_1 block;
    ASSERT_EQ(encodeQ4_1(x, block), ref::EncodeStatus::Ok);
    EXPECT_EQ(block.d, 0);
    EXPECT_EQ(block.m, f32ToF16(value));
  }
  // The reciprocal of the scale is infinite.
  float tiny[32] = {0x1p-149f, -0x1p-140f};
  BlockQ4_1 block;
  ASSERT_EQ(encodeQ4_1(tiny, block), ref::EncodeStatus::Ok);
  EXPECT_EQ(block.d, 0);
}

TEST(Encode, IQ4_NLRefuses) {
  BlockQ4_0 block;
  float x[32] = {1e7f};
  EXPECT_EQ(encodeIQ4_NL(x, block), ref::EncodeStatus::ScaleOverflow);
  // Squares overflow f32.
  x[0] = 1e20f;
  EXPECT_EQ(encodeIQ4_NL(x, block), ref::EncodeStatus::ScaleOverflow);
  x[31] = kInf;
  EXPECT_EQ(encodeIQ4_NL(x, block), ref::EncodeStatus::NotFinite);
}

TEST(Decode, NL4GivesGgufsValues) {
  const Safetensors golden(inputs("quants/blocks.safetensors"));
  const std::vector<uint8_t> blocks = golden.get<uint8_t>("IQ4_NL.bytes");
  const std::vector<float> want = golden.get<float>("IQ4_NL.values");
  ASSERT_EQ(blocks.size() / sizeof(BlockQ4_0), want.size() / 32);
  for (size_t i = 0; i < want.size() / 32; ++i) {
    const uint8_t *block = &blocks[i * sizeof(BlockQ4_0)];
    // The first output of a panel.
    uint8_t panel[288] = {block[0], block[1]};
    for (size_t j = 0; j < 16; ++j)
      panel[32 + j / 4 * 64 + j % 4] = block[2 + j];
    float values[32];
    ref::reference<KernelOp::Embed>(KernelFormat::NL4)(panel, 0, 32, values);
    EXPECT_EQ(std::memcmp(values, &want[i * 32], sizeof(values)), 0)
        << "block " << i;
  }
}

TEST(Encode, Q8_0GivesGgufsBytes) { expectGgufsBytes("Q8_0", encodeQ8_0); }

TEST(Encode, Q8_0Refuses) {
  expectRefusals(encodeQ8_0, 127 * 65519.0f, -127 * 65520.0f);
}

TEST(Encode, Q8_0RoundsHalvesAwayFromZero) {
  float x[32] = {127.0f, 0.5f, -0.5f, 1.5f, -2.5f};
  BlockQ8_0 block;
  ASSERT_EQ(encodeQ8_0(x, block), ref::EncodeStatus::Ok);
  EXPECT_EQ(block.d, f32ToF16(1.0f));
  const int8_t want[] = {127, 1, -1, 2, -3, 0};
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(block.q[i], want[i]) << i;
  // A scale that f16 cannot hold is zero.
  float tiny[32] = {0x1p-149f, -0x1p-140f};
  ASSERT_EQ(encodeQ8_0(tiny, block), ref::EncodeStatus::Ok);
  EXPECT_EQ(block.d, 0);
}

TEST(Encode, Q4OfManyValuesHasOneScale) {
  std::vector<float> x = Random(7).values(128);
  x[100] = -16.0f;
  ref::WeightBlock block;
  ASSERT_EQ(ref::encode<ref::Encoder::Signed4>(x.data(), 128, block),
            ref::EncodeStatus::Ok);
  EXPECT_EQ(block.scale, f32ToF16(2.0f));
  EXPECT_EQ(block.codes[100], 0);
  for (size_t i = 0; i < 128; ++i)
    EXPECT_EQ(block.codes[i],
              static_cast<uint8_t>(std::trunc(x[i] * 0.5f + 8.5f)));
}

TEST(Encode, ZeroPointsOfIntegersAreKept) {
  Random random(8);
  ref::WeightBlock block;
  for (int zero = 0; zero <= 15; ++zero) {
    const float scale =
        f16ToF32(f32ToF16(0.01f + std::fabs(random.value()) * 0.1f));
    float x[128];
    for (int i = 0; i < 128; ++i)
      x[i] = static_cast<float>(i * 5 % 16 - zero) * scale;
    ASSERT_EQ(ref::encode<ref::Encoder::Zero4>(x, 128, block),
              ref::EncodeStatus::Ok);
    EXPECT_EQ(f16ToF32(block.scale), scale);
    EXPECT_EQ(f16ToF32(block.minimum), static_cast<float>(zero));
    for (int i = 0; i < 128; ++i)
      EXPECT_EQ(block.codes[i], i * 5 % 16) << zero;
  }
}

TEST(Encode, ZeroPointsNeedNotBeIntegers) {
  Random random(9);
  ref::WeightBlock block;
  for (int turn = 0; turn < 100; ++turn) {
    std::vector<float> x = random.values(64);
    // Also blocks whose values have one sign.
    for (float &value : x)
      value += static_cast<float>(turn % 3 - 1);
    ASSERT_EQ(ref::encode<ref::Encoder::Zero4>(x.data(), 64, block),
              ref::EncodeStatus::Ok);
    const float scale = f16ToF32(block.scale), zero = f16ToF32(block.minimum);
    EXPECT_GE(zero, 0.0f);
    EXPECT_LE(zero, 15.0f);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR((block.codes[i] - zero) * scale, x[i], 0.51f * scale);
  }
}

TEST(Encode, ZeroPointsOfExtremes) {
  ref::WeightBlock block;
  const auto encode = [&](float first, float second) {
    const float x[32] = {first, second};
    return ref::encode<ref::Encoder::Zero4>(x, 32, block);
  };
  EXPECT_EQ(encode(kNaN, 0.0f), ref::EncodeStatus::NotFinite);
  EXPECT_EQ(encode(1e6f, 0.0f), ref::EncodeStatus::ScaleOverflow);
  EXPECT_EQ(encode(-3e38f, 3e38f), ref::EncodeStatus::ScaleOverflow);
  for (const float tiny : {0.0f, -0.0f, 0x1p-149f, -0x1p-140f}) {
    ASSERT_EQ(encode(tiny, 0.0f), ref::EncodeStatus::Ok);
    EXPECT_EQ(block.scale, 0);
    EXPECT_EQ(block.minimum, 0);
    EXPECT_EQ(block.codes[0], 0);
  }
}

TEST(Encode, ValuesWithZeroPointsAreDifferencesTimesTheScale) {
  const int64_t k = 96;
  const std::vector<float> x = Random(5).values(16 * k);
  const float *rows[kPanelOutputs];
  for (int64_t r = 0; r < kPanelOutputs; ++r)
    rows[r] = x.data() + r * k;
  // A block of 64 and one of the 32 that remain, whose header is as long.
  std::vector<uint8_t> panel(64 + 2 * 256 + 64 + 256, 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q4_Z_64, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelOutputs; ++r) {
    ref::reference<KernelOp::Embed>(KernelFormat::Q4_Z_64)(
        panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t begin = 0; begin < k; begin += 64) {
      ref::WeightBlock want;
      ref::encode<ref::Encoder::Zero4>(rows[r] + begin,
                                       std::min(k - begin, int64_t{64}), want);
      const uint8_t *block = panel.data() + begin / 64 * 576;
      EXPECT_EQ(std::memcmp(block + 2 * r, &want.scale, 2), 0);
      EXPECT_EQ(std::memcmp(block + 32 + 2 * r, &want.minimum, 2), 0);
      for (int64_t j = begin; j < std::min(k, begin + 64); ++j)
        EXPECT_EQ(decoded[static_cast<size_t>(j)],
                  (static_cast<float>(want.codes[j - begin]) -
                   f16ToF32(want.minimum)) *
                      f16ToF32(want.scale));
    }
  }
}

TEST(Encode, Q4_0OfSubnormalsIsZero) {
  float x[32] = {0x1p-149f, -0x1p-140f};
  BlockQ4_0 block;
  ASSERT_EQ(encodeQ4_0(x, block), ref::EncodeStatus::Ok);
  float y[32];
  decodeQ4_0(block, y);
  for (float value : y)
    EXPECT_EQ(value, 0.0f);
}

TEST(Encode, DecodeIsExact) {
  BlockQ4_0 block = {};
  block.d = f32ToF16(-0.25f);
  for (int j = 0; j < 16; ++j)
    block.q[j] = static_cast<uint8_t>(j | (15 - j) << 4);
  float x[32];
  decodeQ4_0(block, x);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(x[j], -0.25f * static_cast<float>(j - 8));
    EXPECT_EQ(x[j + 16], -0.25f * static_cast<float>(7 - j));
  }
}

TEST(Encode, PanelOfF32HasOutputsInLanes) {
  const int64_t k = 32;
  const std::vector<float> a = Random(1).values(k);
  const std::vector<float> b = Random(2).values(k);
  const float *rows[kPanelOutputs] = {a.data(), nullptr, b.data()};
  std::vector<float> panel(static_cast<size_t>(k * kPanelOutputs), kNaN);
  ASSERT_EQ(ref::packPanel(WeightFormat::F32, rows, k,
                           reinterpret_cast<uint8_t *>(panel.data())),
            ref::EncodeStatus::Ok);
  for (size_t i = 0; i < 32; ++i)
    for (size_t r = 0; r < 16; ++r)
      EXPECT_EQ(panel[i * 16 + r], r == 0 ? a[i] : r == 2 ? b[i] : 0.0f);
}

TEST(Encode, PanelOfBF16RoundsToNearest) {
  const int64_t k = 32;
  std::vector<float> a = Random(1).values(k);
  a[3] = 0x1.01p0f; // a tie, to even
  const float *rows[kPanelOutputs] = {nullptr, a.data()};
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::BF16, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::BF16, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  ref::reference<KernelOp::Embed>(KernelFormat::BF16)(panel.data(), 1, k,
                                                      decoded.data());
  for (size_t i = 0; i < 32; ++i) {
    uint16_t bits[2];
    std::memcpy(bits, &panel[i * 32], 4);
    EXPECT_EQ(bits[0], 0);
    EXPECT_EQ(bits[1], f32ToBF16(a[i]));
    EXPECT_EQ(decoded[i], bf16ToF32(bits[1]));
    EXPECT_LE(std::fabs(decoded[i] - a[i]), std::fabs(a[i]) * 0x1p-8f);
  }
  EXPECT_EQ(decoded[3], 1.0f);
  a[7] = -std::numeric_limits<float>::max();
  EXPECT_EQ(ref::packPanel(WeightFormat::BF16, rows, k, panel.data()),
            ref::EncodeStatus::ValueOverflow);
}

TEST(Encode, PanelOfQ4_0InterleavesBlocks) {
  const int64_t k = 96;
  const std::vector<float> x = Random(3).values(16 * k);
  const float *rows[kPanelOutputs];
  for (int64_t r = 0; r < kPanelOutputs; ++r)
    rows[r] = r == 5 ? nullptr : x.data() + r * k;
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::Q4_0, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q4_0, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelOutputs; ++r) {
    ref::reference<KernelOp::Embed>(KernelFormat::Q4_0)(
        panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t g = 0; g < k / 32; ++g) {
      BlockQ4_0 block = {};
      std::fill_n(block.q, 16, uint8_t{0x88});
      if (r != 5) {
        encodeQ4_0(rows[r] + g * 32, block);
      }
      const uint8_t *group = panel.data() + g * 288;
      EXPECT_EQ(std::memcmp(group + 2 * r, &block.d, 2), 0);
      for (int64_t j = 0; j < 16; ++j)
        EXPECT_EQ(group[32 + j / 4 * 64 + r * 4 + j % 4], block.q[j]);
      float want[32];
      decodeQ4_0(block, want);
      EXPECT_EQ(std::memcmp(want, &decoded[static_cast<size_t>(g * 32)], 128),
                0);
    }
  }
}

TEST(Encode, PanelOfQ8_0InterleavesBlocks) {
  const int64_t k = 64;
  const std::vector<float> x = Random(3).values(16 * k);
  const float *rows[kPanelOutputs];
  for (int64_t r = 0; r < kPanelOutputs; ++r)
    rows[r] = r == 5 ? nullptr : x.data() + r * k;
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::Q8_0, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q8_0, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelOutputs; ++r) {
    ref::reference<KernelOp::Embed>(KernelFormat::Q8_0)(
        panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t g = 0; g < k / 32; ++g) {
      BlockQ8_0 block = {};
      if (r != 5) {
        encodeQ8_0(rows[r] + g * 32, block);
      }
      const uint8_t *group = panel.data() + g * 544;
      EXPECT_EQ(std::memcmp(group + 2 * r, &block.d, 2), 0);
      for (int64_t j = 0; j < 32; ++j) {
        EXPECT_EQ(static_cast<int8_t>(group[32 + j / 4 * 64 + r * 4 + j % 4]),
                  block.q[j]);
        EXPECT_EQ(decoded[static_cast<size_t>(g * 32 + j)],
                  static_cast<float>(block.q[j]) * f16ToF32(block.d));
      }
    }
  }
}

TEST(Encode, PanelOfQ4_M_32HasMinimumsBehindScales) {
  const int64_t k = 64;
  const std::vector<float> x = Random(4).values(16 * k);
  const float *rows[kPanelOutputs];
  for (int64_t r = 0; r < kPanelOutputs; ++r)
    rows[r] = r == 5 ? nullptr : x.data() + r * k;
  std::vector<uint8_t> panel(2 * 320, 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q4_M_32, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelOutputs; ++r) {
    ref::reference<KernelOp::Embed>(KernelFormat::Q4_M_32)(
        panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t g = 0; g < k / 32; ++g) {
      BlockQ4_1 want = {};
      if (r != 5)
        encodeQ4_1(rows[r] + g * 32, want);
      const uint8_t *block = panel.data() + g * 320;
      EXPECT_EQ(std::memcmp(block + 2 * r, &want.d, 2), 0);
      EXPECT_EQ(std::memcmp(block + 32 + 2 * r, &want.m, 2), 0);
      for (int64_t j = 0; j < 32; ++j) {
        EXPECT_EQ(block[64 + j % 16 / 4 * 64 + r * 4 + j % 4], want.q[j % 16]);
        const int code = want.q[j % 16] >> (j / 16 * 4) & 15;
        EXPECT_EQ(decoded[static_cast<size_t>(g * 32 + j)],
                  static_cast<float>(code) * f16ToF32(want.d) +
                      f16ToF32(want.m));
      }
    }
  }
}

TEST(Encode, PanelOfQ4_G128HasAShortLastBlock) {
  const int64_t k = 160;
  const std::vector<float> x = Random(3).values(16 * k);
  const float *rows[kPanelOutputs];
  for (int64_t r = 0; r < kPanelOutputs; ++r)
    rows[r] = r == 5 ? nullptr : x.data() + r * k;
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::Q4_G128, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q4_G128, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelOutputs; ++r) {
    ref::reference<KernelOp::Embed>(KernelFormat::Q4_G128)(
        panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t begin = 0; begin < k; begin += 128) {
      ref::WeightBlock want = {};
      if (r != 5)
        ref::encode<ref::Encoder::Signed4>(
            rows[r] + begin, std::min(k - begin, int64_t{128}), want);
      const uint8_t *block = panel.data() + begin / 128 * 1056;
      EXPECT_EQ(std::memcmp(block + 2 * r, &want.scale, 2), 0);
      for (int64_t j = begin; j < std::min(k, begin + 128); ++j) {
        const int64_t g = (j - begin) / 32, i = j % 32;
        const int byte = block[32 + g * 256 + i % 16 / 4 * 64 + r * 4 + i % 4];
        const int nibble = byte >> (i / 16 * 4) & 15;
        EXPECT_EQ(nibble, r == 5 ? 8 : want.codes[j - begin]);
        EXPECT_EQ(decoded[static_cast<size_t>(j)],
                  static_cast<float>(nibble - 8) * f16ToF32(want.scale));
      }
    }
  }
}

TEST(Encode, PanelsRefuse) {
  std::vector<float> x(64, 1.0f);
  const float *rows[kPanelOutputs] = {nullptr, x.data()};
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::F32, 64)));
  x[63] = kNaN;
  for (WeightFormat format : kWeightFormats)
    EXPECT_EQ(ref::packPanel(format, rows, 64, panel.data()),
              ref::EncodeStatus::NotFinite);
  x[63] = 1e6f;
  EXPECT_EQ(ref::packPanel(WeightFormat::F32, rows, 64, panel.data()),
            ref::EncodeStatus::Ok);
  EXPECT_EQ(ref::packPanel(WeightFormat::Q4_0, rows, 64, panel.data()),
            ref::EncodeStatus::ScaleOverflow);
}
