//===- ReferenceTest.cpp - The numerics against other computations --------===//
//
// The reference functions define the project's results; here they are held
// against definitions of others: double precision, gguf's bytes and
// transformers' values.
//
//===----------------------------------------------------------------------===//

#include "Safetensors.h"
#include "qwen/Reference/Encode.h"
#include "qwen/Reference/Float16.h"
#include "qwen/Reference/Kernels.h"
#include "qwen/Reference/Math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace qwen;
namespace ref = qwen::reference;

static constexpr float kInf = std::numeric_limits<float>::infinity();
static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

static std::string inputs(const std::string &name) {
  return std::string(QWEN_SOURCE_DIR "/test/Inputs/") + name;
}

/// Uniform values of [-1, 1), the same on every machine.
class Random {
public:
  explicit Random(uint32_t seed) : generator(seed) {}
  float value() {
    return static_cast<float>(static_cast<int32_t>(generator())) * 0x1p-31f;
  }
  std::vector<float> values(int64_t n, float scale = 1.0f) {
    std::vector<float> result(static_cast<size_t>(n));
    for (float &x : result)
      x = value() * scale;
    return result;
  }

private:
  std::mt19937 generator;
};

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

TEST(Float16, WidensEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const int exponent = half >> 10 & 31;
    const int fraction = half & 1023;
    const double sign = half & 0x8000 ? -1.0 : 1.0;
    const float got = f16ToF32(half);
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    const double want = exponent == 31 ? std::numeric_limits<double>::infinity()
                        : exponent == 0
                            ? std::ldexp(fraction, -24)
                            : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(got, sign * want) << bits;
    ASSERT_EQ(std::signbit(got), sign < 0) << bits;
    ASSERT_EQ(f32ToF16(got), half);
  }
}

/// The nearest half, ties to even, by arithmetic in double.
static double nearestHalf(float x) {
  int exponent;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 1, -14) - 10);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::fabs(rounded) >= 65536.0 ? std::copysign(kInf, x) : rounded;
}

TEST(Float16, RoundsToNearestEven) {
  const auto check = [](uint32_t bits) {
    const float x = std::bit_cast<float>(bits);
    const float got = f16ToF32(f32ToF16(x));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(got)) << std::hex << bits;
      return;
    }
    ASSERT_EQ(std::signbit(got), std::signbit(x)) << std::hex << bits;
    ASSERT_EQ(got, std::isinf(x) ? x : nearestHalf(x)) << std::hex << bits;
  };
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 2003)
    check(static_cast<uint32_t>(bits));
  // Around every half and every midpoint of neighbours.
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const uint32_t low =
        std::bit_cast<uint32_t>(f16ToF32(static_cast<uint16_t>(half)));
    const uint32_t high = std::bit_cast<uint32_t>(
        half == 0x7bff ? 65536.0f : f16ToF32(static_cast<uint16_t>(half + 1)));
    const float middle = (std::bit_cast<float>(low) / 2.0f) +
                         (std::bit_cast<float>(high) / 2.0f);
    for (uint32_t bits : {low, std::bit_cast<uint32_t>(middle)})
      for (uint32_t near : {bits - 1, bits, bits + 1})
        check(near);
  }
}

TEST(Float16, BFloat16IsTheUpperHalf) {
  EXPECT_EQ(bf16ToF32(0x3f80), 1.0f);
  EXPECT_EQ(bf16ToF32(0xc049), -3.140625f);
  EXPECT_EQ(bf16ToF32(0x0001), 0x1p-133f);
}

TEST(Float16, RoundsToBFloat16) {
  // Every value is itself; halfway to the next goes to the even one.
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float x = bf16ToF32(static_cast<uint16_t>(half));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(bf16ToF32(f32ToBF16(x)))) << std::hex << half;
      continue;
    }
    const uint32_t bits = half << 16;
    const auto rounded = [](uint32_t from) -> uint32_t {
      return f32ToBF16(std::bit_cast<float>(from));
    };
    ASSERT_EQ(rounded(bits), half) << std::hex;
    if (std::isinf(x))
      continue;
    ASSERT_EQ(rounded(bits + 0x7fff), half) << std::hex;
    ASSERT_EQ(rounded(bits + 0x8000), half + (half & 1)) << std::hex;
    ASSERT_EQ(rounded(bits + 0x8001), half + 1) << std::hex;
  }
  EXPECT_EQ(f32ToBF16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload is in the lower half alone stays one.
  EXPECT_TRUE(std::isnan(
      bf16ToF32(f32ToBF16(std::bit_cast<float>(uint32_t{0x7f800001})))));
}

//===----------------------------------------------------------------------===//
// Elementary functions
//===----------------------------------------------------------------------===//

TEST(Math, ExpIsWithinItsBound) {
  // 0.98 units in the last place, on arguments of every size and sign.
  double worst = 0;
  const auto check = [&](float x) {
    if (x < -87.3f || x > 88.375f)
      return;
    const double want = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::ilogb(want) - 23);
    worst = std::max(worst, std::fabs(ref::exp(x) - want) / unit);
  };
  for (uint32_t bits = 0; bits < 0x42b10000; bits += 1009) {
    check(std::bit_cast<float>(bits));
    check(-std::bit_cast<float>(bits));
  }
  for (float x = -87.3f; x < 88.375f; x += 0x1p-12f)
    check(x);
  EXPECT_LT(worst, 0.98);
  EXPECT_GT(worst, 0.5);
}

TEST(Math, ExpAtItsEnds) {
  EXPECT_EQ(ref::exp(0.0f), 1.0f);
  EXPECT_EQ(ref::exp(-0.0f), 1.0f);
  EXPECT_GT(ref::exp(-87.3f), 0x1p-126f);
  EXPECT_EQ(ref::exp(std::nextafter(-87.3f, -kInf)), 0.0f);
  EXPECT_EQ(ref::exp(-kInf), 0.0f);
  EXPECT_EQ(ref::exp(kInf), ref::exp(88.375f));
  EXPECT_TRUE(std::isfinite(ref::exp(88.375f)));
}

TEST(Math, SinAndCosAreThoseOfDoublePrecision) {
  // Half a unit in the last place of 1, from the one rounding to f32.
  const double bound = 0x1p-25 * (1 + 1e-6);
  for (int i = 0; i < 400000; ++i) {
    const float angle = static_cast<float>(i) * 0.1024f;
    const ref::SinCos got = ref::sinCos(angle);
    ASSERT_NEAR(got.sin, std::sin(static_cast<double>(angle)), bound) << angle;
    ASSERT_NEAR(got.cos, std::cos(static_cast<double>(angle)), bound) << angle;
  }
  EXPECT_EQ(ref::sinCos(0.0f).sin, 0.0f);
  EXPECT_EQ(ref::sinCos(0.0f).cos, 1.0f);
}

TEST(Math, RopeIsTransformersWithin2em6) {
  const Safetensors golden(inputs("rope/rope.safetensors"));
  const std::vector<int64_t> positions = golden.get<int64_t>("positions");
  int tables = 0;
  for (const auto &[name, theta, headDim] : {std::tuple{"d64.1000000", 1e6, 64},
                                             {"d128.1000000", 1e6, 128},
                                             {"d128.10000", 1e4, 128},
                                             {"d32.5000000", 5e6, 32}}) {
    const auto wantCos = golden.get<float>(std::string(name) + ".cos");
    const auto wantSin = golden.get<float>(std::string(name) + ".sin");
    const size_t half = static_cast<size_t>(headDim) / 2;
    ASSERT_EQ(wantCos.size(), positions.size() * half);
    std::vector<float> invFreq(half), cos(half), sin(half);
    for (size_t i = 0; i < half; ++i)
      invFreq[i] = ref::ropeInvFreq(theta, static_cast<int64_t>(i), headDim);
    for (size_t p = 0; p < positions.size(); ++p) {
      ref::ropeTable(static_cast<int32_t>(positions[p]), invFreq.data(),
                     headDim / 2, cos.data(), sin.data());
      for (size_t i = 0; i < half; ++i) {
        ASSERT_NEAR(cos[i], wantCos[p * half + i], 2e-6) << name;
        ASSERT_NEAR(sin[i], wantSin[p * half + i], 2e-6) << name;
      }
    }
    ++tables;
  }
  EXPECT_EQ(tables, 4);
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

TEST(Encode, Q4_0GivesGgufsBytes) {
  const Safetensors golden(inputs("quants/blocks.safetensors"));
  const std::vector<float> rows = golden.get<float>("rows");
  const std::vector<uint8_t> want = golden.get<uint8_t>("Q4_0");
  ASSERT_EQ(rows.size() / 32 * sizeof(BlockQ4_0), want.size());
  ASSERT_GT(rows.size(), 3000u);
  for (size_t i = 0; i < rows.size() / 32; ++i) {
    BlockQ4_0 block;
    ASSERT_EQ(ref::encodeQ4_0(&rows[i * 32], block), ref::EncodeStatus::Ok);
    ASSERT_EQ(std::memcmp(&block, &want[i * sizeof(block)], sizeof(block)), 0)
        << "block " << i;
  }
}

TEST(Encode, Q4_0Refuses) {
  BlockQ4_0 block;
  for (float bad : {kNaN, kInf, -kInf}) {
    float x[32] = {1.0f};
    x[31] = bad;
    EXPECT_EQ(ref::encodeQ4_0(x, block), ref::EncodeStatus::NotFinite);
  }
  float x[32] = {8 * 65519.0f};
  EXPECT_EQ(ref::encodeQ4_0(x, block), ref::EncodeStatus::Ok);
  x[0] = 8 * 65520.0f;
  EXPECT_EQ(ref::encodeQ4_0(x, block), ref::EncodeStatus::ScaleOverflow);
  x[0] = -8 * 65520.0f;
  EXPECT_EQ(ref::encodeQ4_0(x, block), ref::EncodeStatus::ScaleOverflow);
  EXPECT_EQ(ref::encodeStatusMessage(ref::EncodeStatus::ScaleOverflow),
            "has a block whose scale overflows f16");
  EXPECT_EQ(ref::encodeStatusMessage(ref::EncodeStatus::NotFinite),
            "has a value that is not finite");
}

TEST(Encode, Q8_0GivesGgufsBytes) {
  const Safetensors golden(inputs("quants/blocks.safetensors"));
  const std::vector<float> rows = golden.get<float>("rows");
  const std::vector<uint8_t> want = golden.get<uint8_t>("Q8_0");
  ASSERT_EQ(rows.size() / 32 * sizeof(BlockQ8_0), want.size());
  for (size_t i = 0; i < rows.size() / 32; ++i) {
    BlockQ8_0 block;
    ASSERT_EQ(ref::encodeQ8_0(&rows[i * 32], block), ref::EncodeStatus::Ok);
    ASSERT_EQ(std::memcmp(&block, &want[i * sizeof(block)], sizeof(block)), 0)
        << "block " << i;
  }
}

TEST(Encode, Q8_0Refuses) {
  BlockQ8_0 block;
  for (float bad : {kNaN, kInf, -kInf}) {
    float x[32] = {1.0f};
    x[31] = bad;
    EXPECT_EQ(ref::encodeQ8_0(x, block), ref::EncodeStatus::NotFinite);
  }
  float x[32] = {127 * 65519.0f};
  EXPECT_EQ(ref::encodeQ8_0(x, block), ref::EncodeStatus::Ok);
  x[0] = -127 * 65520.0f;
  EXPECT_EQ(ref::encodeQ8_0(x, block), ref::EncodeStatus::ScaleOverflow);
}

TEST(Encode, Q8_0RoundsHalvesAwayFromZero) {
  float x[32] = {127.0f, 0.5f, -0.5f, 1.5f, -2.5f};
  BlockQ8_0 block;
  ASSERT_EQ(ref::encodeQ8_0(x, block), ref::EncodeStatus::Ok);
  EXPECT_EQ(block.d, f32ToF16(1.0f));
  const int8_t want[] = {127, 1, -1, 2, -3, 0};
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(block.q[i], want[i]) << i;
  // A scale that f16 cannot hold is zero.
  float tiny[32] = {0x1p-149f, -0x1p-140f};
  ASSERT_EQ(ref::encodeQ8_0(tiny, block), ref::EncodeStatus::Ok);
  EXPECT_EQ(block.d, 0);
}

TEST(Encode, Q4OfManyValuesHasOneScale) {
  std::vector<float> x = Random(7).values(128);
  x[100] = -16.0f;
  uint16_t d = 0;
  std::vector<uint8_t> q(128);
  ASSERT_EQ(ref::encodeQ4(x.data(), 128, d, q.data()), ref::EncodeStatus::Ok);
  EXPECT_EQ(d, f32ToF16(2.0f));
  EXPECT_EQ(q[100], 0);
  for (size_t i = 0; i < 128; ++i)
    EXPECT_EQ(q[i], static_cast<uint8_t>(std::trunc(x[i] * 0.5f + 8.5f)));
}

TEST(Encode, Q4_0OfSubnormalsIsZero) {
  float x[32] = {0x1p-149f, -0x1p-140f};
  BlockQ4_0 block;
  ASSERT_EQ(ref::encodeQ4_0(x, block), ref::EncodeStatus::Ok);
  float y[32];
  ref::decodeQ4_0(block, y);
  for (float value : y)
    EXPECT_EQ(value, 0.0f);
}

TEST(Encode, DecodeIsExact) {
  BlockQ4_0 block = {};
  block.d = f32ToF16(-0.25f);
  for (int j = 0; j < 16; ++j)
    block.q[j] = static_cast<uint8_t>(j | (15 - j) << 4);
  float x[32];
  ref::decodeQ4_0(block, x);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(x[j], -0.25f * static_cast<float>(j - 8));
    EXPECT_EQ(x[j + 16], -0.25f * static_cast<float>(7 - j));
  }
}

TEST(Encode, PanelOfF32HasOutputsInLanes) {
  const int64_t k = 32;
  const std::vector<float> a = Random(1).values(k);
  const std::vector<float> b = Random(2).values(k);
  const float *rows[kPanelRows] = {a.data(), nullptr, b.data()};
  std::vector<float> panel(static_cast<size_t>(k * kPanelRows), kNaN);
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
  const float *rows[kPanelRows] = {nullptr, a.data()};
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::BF16, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::BF16, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  ref::embedBF16(panel.data(), 1, k, decoded.data());
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
  const float *rows[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r)
    rows[r] = r == 5 ? nullptr : x.data() + r * k;
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::Q4_0, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q4_0, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    ref::embedQ4_0(panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t g = 0; g < k / 32; ++g) {
      BlockQ4_0 block = {};
      std::fill_n(block.q, 16, uint8_t{0x88});
      if (r != 5) {
        ref::encodeQ4_0(rows[r] + g * 32, block);
      }
      const uint8_t *group = panel.data() + g * 288;
      EXPECT_EQ(std::memcmp(group + 2 * r, &block.d, 2), 0);
      for (int64_t j = 0; j < 16; ++j)
        EXPECT_EQ(group[32 + j / 4 * 64 + r * 4 + j % 4], block.q[j]);
      float want[32];
      ref::decodeQ4_0(block, want);
      EXPECT_EQ(std::memcmp(want, &decoded[static_cast<size_t>(g * 32)], 128),
                0);
    }
  }
}

TEST(Encode, PanelOfQ8_0InterleavesBlocks) {
  const int64_t k = 64;
  const std::vector<float> x = Random(3).values(16 * k);
  const float *rows[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r)
    rows[r] = r == 5 ? nullptr : x.data() + r * k;
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::Q8_0, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q8_0, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    ref::embedQ8_0(panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t g = 0; g < k / 32; ++g) {
      BlockQ8_0 block = {};
      if (r != 5) {
        ref::encodeQ8_0(rows[r] + g * 32, block);
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

TEST(Encode, PanelOfQ4_G128HasAShortLastBlock) {
  const int64_t k = 160;
  const std::vector<float> x = Random(3).values(16 * k);
  const float *rows[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r)
    rows[r] = r == 5 ? nullptr : x.data() + r * k;
  std::vector<uint8_t> panel(
      static_cast<size_t>(panelBytes(WeightFormat::Q4_G128, k)), 0xee);
  ASSERT_EQ(ref::packPanel(WeightFormat::Q4_G128, rows, k, panel.data()),
            ref::EncodeStatus::Ok);
  std::vector<float> decoded(k);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    ref::embedQ4_G128(panel.data(), static_cast<int32_t>(r), k, decoded.data());
    for (int64_t begin = 0; begin < k; begin += 128) {
      uint16_t d = 0;
      uint8_t q[128] = {};
      if (r != 5) {
        ref::encodeQ4(rows[r] + begin, std::min(k - begin, int64_t{128}), d, q);
      }
      const uint8_t *block = panel.data() + begin / 128 * 1056;
      EXPECT_EQ(std::memcmp(block + 2 * r, &d, 2), 0);
      for (int64_t j = begin; j < std::min(k, begin + 128); ++j) {
        const int64_t g = (j - begin) / 32, i = j % 32;
        const int byte = block[32 + g * 256 + i % 16 / 4 * 64 + r * 4 + i % 4];
        const int nibble = byte >> (i / 16 * 4) & 15;
        EXPECT_EQ(nibble, r == 5 ? 8 : q[j - begin]);
        EXPECT_EQ(decoded[static_cast<size_t>(j)],
                  static_cast<float>(nibble - 8) * f16ToF32(d));
      }
    }
  }
}

TEST(Encode, PanelsRefuse) {
  std::vector<float> x(64, 1.0f);
  const float *rows[kPanelRows] = {nullptr, x.data()};
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

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

namespace {
/// Operands of a product of `panels` panels.
struct Product {
  int64_t m, k, n;
  std::vector<float> w, x, bias, residual;
  std::vector<uint8_t> packed;

  Product(WeightFormat format, int64_t m, int64_t k, int64_t panels)
      : m(m), k(k), n(panels * kPanelRows) {
    Random random(7);
    w = random.values(n * k);
    x = random.values(m * k);
    bias = random.values(n);
    residual = random.values(m * n);
    pack(format);
  }

  void pack(WeightFormat format) {
    packed.resize(static_cast<size_t>(packedBytes(format, n, k)));
    for (int64_t p = 0; p < n / kPanelRows; ++p) {
      const float *rows[kPanelRows];
      for (int64_t r = 0; r < kPanelRows; ++r)
        rows[r] = w.data() + (p * kPanelRows + r) * k;
      ref::packPanel(format, rows, k,
                     packed.data() + p * panelBytes(format, k));
    }
  }

  /// Checks `out` against sums in double of the operands that `weight` and
  /// `activation` give by (row, index).
  template <typename W, typename X>
  void check(const std::vector<float> &out, W weight, X activation) const {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 1;
        for (int64_t l = 0; l < k; ++l) {
          const double term =
              static_cast<double>(weight(j, l)) * activation(i, l);
          sum += term;
          size += std::fabs(term);
        }
        sum += bias[static_cast<size_t>(j)];
        sum += residual[static_cast<size_t>(i * n + j)];
        ASSERT_NEAR(out[static_cast<size_t>(i * n + j)], sum, size * 1e-6);
      }
  }
};
} // namespace

TEST(Linear, F32) {
  const Product p(WeightFormat::F32, 3, 160, 2);
  std::vector<float> out(static_cast<size_t>(p.m * p.n), kNaN);
  ref::linearF32(p.x.data(), p.packed.data(), p.bias.data(), p.residual.data(),
                 out.data(), p.m, p.k, p.n, 0, 2);
  p.check(
      out, [&](int64_t j, int64_t l) { return p.w[size_t(j * p.k + l)]; },
      [&](int64_t i, int64_t l) { return p.x[size_t(i * p.k + l)]; });
}

TEST(Linear, BF16IsF32OfTheSameWeights) {
  Product p(WeightFormat::F32, 3, 160, 2);
  for (float &w : p.w)
    w = bf16ToF32(f32ToBF16(w));
  std::vector<float> outs[2];
  for (WeightFormat format : {WeightFormat::F32, WeightFormat::BF16}) {
    p.pack(format);
    std::vector<float> &out = outs[format == WeightFormat::BF16];
    out.assign(static_cast<size_t>(p.m * p.n), kNaN);
    LinearF32Fn *linear =
        format == WeightFormat::F32 ? ref::linearF32 : ref::linearBF16;
    linear(p.x.data(), p.packed.data(), p.bias.data(), p.residual.data(),
           out.data(), p.m, p.k, p.n, 0, 2);
  }
  EXPECT_EQ(outs[0], outs[1]);
}

/// A product with quantized weights and the function that decodes them.
static void checkQuantized(WeightFormat format, LinearQ8Fn *linear,
                           EmbedFn *embed) {
  const Product p(format, 3, 288, 2); // blocks of 128, 128, 32
  const int64_t blocks = 3;
  std::vector<int8_t> q(size_t(p.m * p.k));
  std::vector<float> d(size_t(p.m * blocks));
  std::vector<int32_t> sums(size_t(p.m * p.k / 32));
  for (int64_t i = 0; i < p.m; ++i)
    EXPECT_EQ(ref::quantizeQ8(p.x.data() + i * p.k, p.k, q.data() + i * p.k,
                              d.data() + i * blocks,
                              sums.data() + i * p.k / 32),
              0);
  std::vector<float> out(size_t(p.m * p.n), kNaN);
  linear(q.data(), d.data(), sums.data(), p.packed.data(), p.bias.data(),
         p.residual.data(), out.data(), p.m, p.k, p.n, 0, 2);
  std::vector<float> w(size_t(p.n * p.k));
  for (int64_t j = 0; j < p.n; ++j)
    embed(p.packed.data(), static_cast<int32_t>(j), p.k, w.data() + j * p.k);
  p.check(
      out, [&](int64_t j, int64_t l) { return w[size_t(j * p.k + l)]; },
      [&](int64_t i, int64_t l) {
        return double{d[size_t(i * blocks + l / 128)]} * q[size_t(i * p.k + l)];
      });
}

TEST(Linear, Quantized) {
  checkQuantized(WeightFormat::Q8_0, ref::linearQ8_0, ref::embedQ8_0);
  checkQuantized(WeightFormat::Q4_0, ref::linearQ4_0, ref::embedQ4_0);
  checkQuantized(WeightFormat::Q4_G128, ref::linearQ4_G128, ref::embedQ4_G128);
}

TEST(Linear, ComputesOnlyItsPanels) {
  const Product p(WeightFormat::F32, 2, 32, 3);
  std::vector<float> all(size_t(p.m * p.n)), part(size_t(p.m * p.n), kNaN);
  ref::linearF32(p.x.data(), p.packed.data(), nullptr, nullptr, all.data(), p.m,
                 p.k, p.n, 0, 3);
  ref::linearF32(p.x.data(), p.packed.data(), nullptr, nullptr, part.data(),
                 p.m, p.k, p.n, 1, 2);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % 48 >= 16 && i % 48 < 32)
      EXPECT_EQ(part[i], all[i]);
    else
      EXPECT_TRUE(std::isnan(part[i]));
  }
}

TEST(Linear, AddsTheBiasFirst) {
  // 2^24 + 1 rounds to 2^24 and 2^24 - 1 is exact, so the order shows.
  const std::vector<float> w(32 * 16, 0x1p19f), x(32, 1.0f);
  const std::vector<float> bias(16, 1.0f), residual(16, -1.0f);
  std::vector<float> out(16);
  ref::linearF32(x.data(), reinterpret_cast<const uint8_t *>(w.data()),
                 bias.data(), residual.data(), out.data(), 1, 32, 16, 0, 1);
  EXPECT_EQ(out[0], 0x1p24f - 1.0f);
}

TEST(Attention, ScoresAndValues) {
  const int64_t groups = 2, headDim = 24, n = 37;
  Random random(11);
  const std::vector<float> q = random.values(groups * headDim);
  const std::vector<float> page = random.values(headDim * 64);
  std::vector<uint16_t> page16(page.size());
  std::transform(page.begin(), page.end(), page16.begin(), f32ToF16);
  std::vector<float> s(size_t(groups * 64)), s16(s),
      o(size_t(groups * headDim)), o16(o);
  ref::attentionScoresF32(q.data(), page.data(), 0.125f, s.data(), groups,
                          headDim, n);
  ref::attentionScoresF16(q.data(), page16.data(), 0.125f, s16.data(), groups,
                          headDim, n);
  ref::attentionValuesF32(s.data(), page.data(), o.data(), groups, headDim, n);
  ref::attentionValuesF16(s16.data(), page16.data(), o16.data(), groups,
                          headDim, n);
  const auto f32 = [&](int64_t i) { return page[size_t(i)]; };
  const auto f16 = [&](int64_t i) { return f16ToF32(page16[size_t(i)]); };
  const auto check = [&](auto value, const auto &scores, const auto &values) {
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < headDim; ++i)
          sum += double{q[size_t(g * headDim + i)]} * value(i * 64 + j);
        ASSERT_NEAR(scores[size_t(g * 64 + j)], sum * 0.125, 1e-6);
      }
      for (int64_t i = 0; i < headDim; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < n; ++j)
          sum += double{scores[size_t(g * 64 + j)]} * value(j * headDim + i);
        ASSERT_NEAR(values[size_t(g * headDim + i)], sum, 3e-6);
      }
    }
  };
  check(f32, s, o);
  check(f16, s16, o16);
}

//===----------------------------------------------------------------------===//
// Around the products
//===----------------------------------------------------------------------===//

TEST(Quantize, RoundsHalfToEvenAndSums) {
  std::vector<float> x(160, 0.0f); // the last block has 32 values
  x[0] = -127.0f;                  // so the scale is 1
  x[1] = 2.5f;
  x[2] = 3.5f;
  x[3] = -2.5f;
  x[33] = 100.4f;
  x[130] = 2.0f;
  x[131] = -1.0f;
  std::vector<int8_t> q(160);
  std::vector<float> d(2);
  std::vector<int32_t> sums(5);
  ASSERT_EQ(ref::quantizeQ8(x.data(), 160, q.data(), d.data(), sums.data()), 0);
  EXPECT_EQ(d, (std::vector<float>{1.0f, 2.0f / 127.0f}));
  EXPECT_EQ(sums, (std::vector<int32_t>{-123, 100, 0, 0, 63}));
  EXPECT_EQ(q[0], -127);
  EXPECT_EQ(q[1], 2);
  EXPECT_EQ(q[2], 4);
  EXPECT_EQ(q[3], -2);
  EXPECT_EQ(q[130], 127);
  EXPECT_EQ(q[131], -64); // -63.5
}

TEST(Quantize, TinyBlocksAreZero) {
  for (float amax : {0.0f, 0x1p-149f, std::nextafter(0x1p-100f, 0.0f)}) {
    const std::vector<float> x(32, -amax);
    std::vector<int8_t> q(32, 99);
    float d = kNaN;
    int32_t sum = 99;
    EXPECT_EQ(ref::quantizeQ8(x.data(), 32, q.data(), &d, &sum), 0);
    EXPECT_EQ(d, 0.0f);
    EXPECT_EQ(sum, 0);
    EXPECT_EQ(q, std::vector<int8_t>(32, 0));
  }
  for (float amax : {0x1p-100f, std::numeric_limits<float>::max()}) {
    const std::vector<float> x(32, -amax);
    std::vector<int8_t> q(32);
    float d;
    int32_t sum;
    EXPECT_EQ(ref::quantizeQ8(x.data(), 32, q.data(), &d, &sum), 0);
    EXPECT_EQ(d, amax / 127.0f);
    EXPECT_EQ(sum, -127 * 32);
  }
}

TEST(Flags, ShowEveryNonFiniteInput) {
  for (float bad : {kNaN, -kNaN, kInf, -kInf})
    for (size_t at : {0, 31, 128, 159}) {
      std::vector<float> x(160, 1.0f), w(160, 1.0f);
      int8_t q[160];
      float d[2];
      int32_t sums[5];
      std::vector<float> slots(160 * 64);
      const auto flags = [&] {
        return std::array{
            ref::quantizeQ8(x.data(), 160, q, d, sums),
            ref::rmsNormQ8(x.data(), w.data(), 160, 1e-6f, q, d, sums),
            ref::swiGluQ8(x.data() + at / 128 * 32, w.data(), 128, q, d, sums),
            ref::swiGluQ8(w.data(), x.data() + at / 128 * 32, 128, q, d, sums),
            ref::appendKF32(x.data(), 160, slots.data()),
            ref::appendKF16(x.data(), 160, slots.data()),
            ref::appendVF32(x.data(), 160, slots.data()),
            ref::appendVF16(x.data(), 160, slots.data()),
            ref::checkFinite(x.data(), 160)};
      };
      for (int32_t flag : flags())
        EXPECT_EQ(flag, 0);
      x[at] = bad;
      for (int32_t flag : flags())
        EXPECT_EQ(flag, 1);
    }
}

TEST(Append, WritesSlotsAndFlagsHalfOverflow) {
  const std::vector<float> x = {1.5f, -2.0f, 65519.0f};
  std::vector<uint16_t> half(3 * 64, 0xeeee);
  EXPECT_EQ(ref::appendKF16(x.data(), 3, half.data() + 5), 0);
  EXPECT_EQ(half[5], f32ToF16(1.5f));
  EXPECT_EQ(half[64 + 5], f32ToF16(-2.0f));
  EXPECT_EQ(half[128 + 5], 0x7bff);
  EXPECT_EQ(std::count(half.begin(), half.end(), 0xeeee), 3 * 64 - 3);
  EXPECT_EQ(ref::appendVF16(x.data(), 3, half.data()), 0);
  EXPECT_EQ(half[1], f32ToF16(-2.0f));
  std::vector<float> single(3 * 64, -1.0f);
  EXPECT_EQ(ref::appendKF32(x.data(), 3, single.data()), 0);
  EXPECT_EQ(single[128], 65519.0f);
  EXPECT_EQ(ref::appendVF32(x.data(), 3, single.data()), 0);
  EXPECT_EQ(single[2], 65519.0f);
  for (float large : {65520.0f, -65520.0f, 1e30f}) {
    EXPECT_EQ(ref::appendKF16(&large, 1, half.data()), 1);
    EXPECT_EQ(ref::appendVF16(&large, 1, half.data()), 1);
    EXPECT_EQ(ref::appendVF32(&large, 1, single.data()), 0);
  }
}

TEST(Norm, IsThatOfDoublePrecision) {
  for (int64_t k : {8, 24, 64, 896}) {
    Random random(13);
    const std::vector<float> x = random.values(k, 3.0f), w = random.values(k);
    double sum = 0;
    for (float value : x)
      sum += double{value} * value;
    const double r = 1 / std::sqrt(sum / static_cast<double>(k) + 0.5);
    std::vector<float> y(x.size());
    ref::rmsNormF32(x.data(), w.data(), k, 0.5f, y.data());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(y[i], x[i] * r * w[i], 1e-6);
  }
}

TEST(Norm, RowsWhoseSquaresOverflowAreFlagged) {
  std::vector<float> x(160, 1.0f), y(160);
  const std::vector<float> w(160, 0.5f), cos(80, 1.0f), sin(80, 0.0f);
  int8_t q[160];
  float d[2];
  int32_t sums[5];
  // 1.8446743e19 squared is the largest finite square.
  x[33] = 0x1.fffffep63f;
  EXPECT_EQ(ref::rmsNormQ8(x.data(), w.data(), 160, 1e-6f, q, d, sums), 0);
  x[33] = 0x1p64f;
  EXPECT_EQ(ref::rmsNormQ8(x.data(), w.data(), 160, 1e-6f, q, d, sums), 1);
  ref::rmsNormF32(x.data(), w.data(), 160, 1e-6f, y.data());
  for (float value : y)
    EXPECT_TRUE(std::isnan(value));
  // Heads have nothing behind them that looks.
  ref::normRope(x.data(), w.data(), cos.data(), sin.data(), 80, 1e-6f,
                y.data());
  EXPECT_EQ(y, std::vector<float>(160, 0.0f));
}

TEST(Norm, QuantizedIsNormThenQuantize) {
  const int64_t k = 160;
  const std::vector<float> x = Random(17).values(k), w = Random(18).values(k);
  std::vector<float> y(x.size());
  ref::rmsNormF32(x.data(), w.data(), k, 1e-6f, y.data());
  std::vector<int8_t> q(x.size()), wantQ(q);
  std::vector<float> d(2), wantD(2);
  std::vector<int32_t> sums(5), wantSums(5);
  ref::quantizeQ8(y.data(), k, wantQ.data(), wantD.data(), wantSums.data());
  ref::rmsNormQ8(x.data(), w.data(), k, 1e-6f, q.data(), d.data(), sums.data());
  EXPECT_EQ(q, wantQ);
  EXPECT_EQ(d, wantD);
  EXPECT_EQ(sums, wantSums);
}

TEST(SwiGlu, IsThatOfDoublePrecision) {
  Random random(19);
  const std::vector<float> gate = random.values(128, 20.0f);
  const std::vector<float> up = random.values(128);
  std::vector<float> y(128);
  ref::swiGluF32(gate.data(), up.data(), 128, y.data());
  int8_t q[128];
  float d;
  int32_t sums[4];
  EXPECT_EQ(ref::swiGluQ8(gate.data(), up.data(), 128, q, &d, sums), 0);
  for (size_t i = 0; i < y.size(); ++i) {
    const double g = gate[i];
    const double want = g / (1 + std::exp(-g)) * up[i];
    ASSERT_NEAR(y[i], want, std::fabs(want) * 4e-7);
    ASSERT_NEAR(d * static_cast<float>(q[i]), want, 0.51 * d);
  }
}

TEST(Rope, RotatesHalves) {
  const std::vector<float> x = {1, 2, 3, 4}, cos = {0.5f, 0.25f},
                           sin = {-1.0f, 2.0f}, w = {2, 1, 1, -1};
  std::vector<float> y(4);
  ref::rope(x.data(), cos.data(), sin.data(), 2, y.data());
  EXPECT_EQ(y, (std::vector<float>{0.5f + 3, 0.5f - 8, 1.5f - 1, 1 + 4}));
  // The mean of the squares is 7.5; eps makes it 16.
  std::vector<float> scaled(4);
  ref::normRope(x.data(), w.data(), cos.data(), sin.data(), 2, 8.5f,
                scaled.data());
  EXPECT_EQ(scaled, (std::vector<float>{0.25f + 0.75f, 0.125f + 2,
                                        0.375f - 0.5f, -0.25f + 1}));
}

TEST(Softmax, PageIsThatOfDoublePrecision) {
  for (int64_t n : {1, 15, 16, 17, 64}) {
    const std::vector<float> s = Random(23).values(64, 9.0f);
    std::vector<float> p(64, kNaN);
    float m, l;
    ref::softmaxPage(s.data(), n, p.data(), &m, &l);
    EXPECT_EQ(m, *std::max_element(s.begin(), s.begin() + n));
    double sum = 0;
    for (int64_t j = 0; j < 64; ++j) {
      const double want = j < n ? std::exp(double{s[size_t(j)]} - m) : 0;
      ASSERT_NEAR(p[size_t(j)], want, want * 1e-6);
      sum += want;
    }
    EXPECT_NEAR(l, sum, sum * 1e-6);
  }
}

TEST(Softmax, SumsInLanes) {
  // exp(-16.7) is a little less than half an ulp of 1: lost one by one, seen
  // when two are added first.
  std::vector<float> s(64, -200.0f), p(64);
  s[0] = 0.0f;
  float m, l;
  s[16] = s[32] = -16.7f; // lane 0, one after the other
  ref::softmaxPage(s.data(), 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f);
  s[16] = s[32] = -200.0f;
  s[1] = s[17] = -16.7f; // lane 1
  ref::softmaxPage(s.data(), 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f + 0x1p-23f);
  s[1] = s[17] = -200.0f;
  s[4] = s[12] = -16.7f; // the tree's first level
  ref::softmaxPage(s.data(), 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f + 0x1p-23f);
  s[4] = s[12] = -200.0f;
  s[8] = s[4] = -16.7f; // lane 8 joins lane 0 before lane 4 does
  ref::softmaxPage(s.data(), 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f);
}

TEST(Softmax, MergesPages) {
  const std::vector<float> oOld = {1, -2}, o = {0.5f, 4};
  for (const auto [mOld, m] : {std::pair{0.5f, -1.0f}, {-1.0f, 0.5f}}) {
    float mNew, lNew, oNew[2], y[2];
    ref::mergePage(mOld, 3, oOld.data(), m, 2, o.data(), 2, &mNew, &lNew, oNew);
    const double a = std::exp(double{mOld} - 0.5),
                 b = std::exp(double{m} - 0.5);
    EXPECT_EQ(mNew, 0.5f);
    EXPECT_NEAR(lNew, 3 * a + 2 * b, 1e-6);
    ref::finishAttention(oNew, lNew, 2, y);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(oNew[i], oOld[i] * a + o[i] * b, 1e-6);
      EXPECT_EQ(y[i], oNew[i] / lNew);
    }
  }
}

TEST(Softmax, ZeroMaximumIsPositive) {
  const std::vector<float> s(64, -0.0f);
  std::vector<float> p(64);
  float m, l;
  ref::softmaxPage(s.data(), 3, p.data(), &m, &l);
  EXPECT_FALSE(std::signbit(m));
  float mNew, lNew, oNew;
  ref::mergePage(-1.0f, 1.0f, p.data(), -0.0f, l, p.data(), 1, &mNew, &lNew,
                 &oNew);
  EXPECT_FALSE(std::signbit(mNew));
}

TEST(Softmax, FirstPageIsTakenAsItIs) {
  const std::vector<float> zero = {0, 0}, o = {0.3f, -4};
  float mNew, lNew, oNew[2];
  ref::mergePage(-kInf, 0, zero.data(), 1.25f, 2.7f, o.data(), 2, &mNew, &lNew,
                 oNew);
  EXPECT_EQ(mNew, 1.25f);
  EXPECT_EQ(lNew, 2.7f);
  EXPECT_EQ(oNew[0], 0.3f);
  EXPECT_EQ(oNew[1], -4.0f);
}

TEST(Kernels, EveryRowHasAReference) {
  EXPECT_EQ(ref::referenceKernel(*findKernel("attention_scores_f16_neon")),
            reinterpret_cast<void *>(
                static_cast<AttentionScoresFn *>(ref::attentionScoresF16)));
  for (const KernelInfo &kernel : kernelTable())
    EXPECT_NE(ref::referenceKernel(kernel), nullptr) << kernel.name;
}
