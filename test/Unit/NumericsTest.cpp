//===- NumericsTest.cpp - The numerics against other computations ---------===//
//
// The reference functions define the project's results; here they are held
// against definitions of others: double precision, gguf's bytes and
// transformers' values.
//
//===----------------------------------------------------------------------===//

#include "NumericsRandom.h"
#include "Safetensors.h"
#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;
namespace ref = qwen::numerics;

//===----------------------------------------------------------------------===//
// Functions of double
//===----------------------------------------------------------------------===//

/// How far `got` is from `exact`, in units of the last place.
static double ulps(double got, long double exact) {
  const double next = std::nextafter(std::fabs(got), kInf) - std::fabs(got);
  return static_cast<double>(std::fabs(got - exact) / next);
}

TEST(Doubles, AreNearTheExactValues) {
  double worstExp = 0, worstLog = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double x = -700 + i * 0.007;
    worstExp = std::max(worstExp, ulps(ref::exp(x), std::exp(0.0L + x)));
    // Around 1, where the logarithm is small, and far away.
    for (double y : {0.3 + i * 1e-5, std::exp(x)})
      worstLog = std::max(worstLog, ulps(ref::log(y), std::log(0.0L + y)));
  }
  EXPECT_LT(worstExp, 1.5);
  EXPECT_LT(worstLog, 1);
  EXPECT_EQ(ref::exp(0.0), 1);
  EXPECT_EQ(ref::exp(-709.0), 0);
  EXPECT_EQ(ref::exp(1000.0), ref::exp(709.0));
  EXPECT_EQ(ref::log(1), 0);
  EXPECT_NEAR(ref::pow(2, 10), 1024, 1e-11);
}

// The same on every machine: their sum has these bits.
TEST(Doubles, HaveTheSameBitsEverywhere) {
  double sum = 0;
  std::vector<float> values;
  for (int i = 1; i <= 1000; ++i) {
    sum += ref::exp(i * -0.37) + ref::log(i * 0.013) + ref::pow(i, 0.3);
    values.push_back(static_cast<float>(i % 37) * -0.7f);
  }
  EXPECT_EQ(sum, 0x1.e057370c9ac7dp+12);
  EXPECT_EQ(ref::sumExp(values, 0), 0x1.b10adaf35edbbp+5);
  // One lane after another, and a rest.
  double inDouble = 0;
  for (float value : values)
    inDouble += std::exp(0.0 + value);
  EXPECT_NEAR(ref::sumExp(values, 0), inDouble, inDouble * 1e-14);
}

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

TEST(Math, SoftplusIsWithinItsBound) {
  EXPECT_EQ(ref::softplus(0), std::log(2.0f));
  EXPECT_EQ(ref::softplus(-200), 0);
  EXPECT_EQ(ref::softplus(200), 200);
  double worst = 0;
  for (float x = -85; x < 85; x += 0.000977f) {
    const double exact = std::log1p(std::exp(static_cast<double>(x)));
    const auto near = static_cast<float>(exact);
    const double ulp = std::nextafter(near, kInf) - near;
    worst = std::max(worst, std::fabs(ref::softplus(x) - exact) / ulp);
  }
  EXPECT_LT(worst, 3);
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
