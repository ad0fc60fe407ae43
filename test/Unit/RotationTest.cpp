//===- RotationTest.cpp - Rotations ---------------------------------------===//

#include "qwen/Numerics/Rotation.h"

#include "NumericsRandom.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

using namespace qwen;
using numerics::Rotation;

/// Row `i` of R.
static std::vector<double> rowOf(const Rotation &rotation, int64_t i) {
  std::vector<double> x(static_cast<size_t>(rotation.size()));
  x[static_cast<size_t>(i)] = 1;
  rotation.turn(x.data());
  return x;
}

TEST(Rotation, IsOrthogonalAndSpreadsEachValue) {
  std::vector<int64_t> sizes = {16, 48, 80, 4864, 5120, 131072};
  for (int64_t size = 32; size <= 576; size += 32)
    sizes.push_back(size);
  for (int64_t size : sizes) {
    const Rotation rotation(size);
    const double most = std::sqrt(2 / static_cast<double>(size)) + 1e-12;
    for (int64_t i : {int64_t{0}, int64_t{1}, size / 2, size - 1}) {
      std::vector<double> row = rowOf(rotation, i);
      for (double value : row)
        ASSERT_LE(std::fabs(value), most) << size << ", row " << i;
      rotation.turnBack(row.data());
      for (int64_t j = 0; j < size; ++j)
        ASSERT_NEAR(row[static_cast<size_t>(j)], i == j, 1e-14)
            << size << ", row " << i << ", value " << j;
    }
  }
}

TEST(Rotation, IsTheMatrixOfItsDefinition) {
  constexpr int64_t size = 96, odd = 3, width = 32;
  const Rotation rotation(size);
  ASSERT_EQ(rotation.factor().size(), size_t{odd});
  for (int64_t i = 0; i < size; ++i) {
    const std::vector<double> row = rowOf(rotation, i);
    for (int64_t j = 0; j < size; ++j) {
      const int bits =
          std::popcount(static_cast<uint64_t>(i & j & (width - 1)));
      const int64_t rows = (i / width) * (j / width);
      const double angle =
          2 * std::numbers::pi * static_cast<double>(rows) / odd;
      ASSERT_NEAR(row[static_cast<size_t>(j)],
                  rotation.signs()[static_cast<size_t>(i)] *
                      (bits % 2 == 0 ? 1 : -1) *
                      (std::cos(angle) + std::sin(angle)) /
                      std::sqrt(static_cast<double>(size)),
                  1e-14);
    }
  }
  // SplitMix64 of the seed 0: 16294208416658607535, 7960286522194355700, ...
  EXPECT_EQ(rotation.signs()[0], -1);
  EXPECT_EQ(rotation.signs()[1], 1);
  const double sum =
      std::accumulate(rotation.signs().begin(), rotation.signs().end(), 0.0);
  EXPECT_LE(std::fabs(sum), 30);
}

TEST(Rotation, HasTheAnglesOfLibm) {
  for (int64_t n : {1, 3, 9, 19, 4095})
    for (int64_t i = 0; i < n; ++i) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i) /
                           static_cast<double>(n);
      ASSERT_NEAR(numerics::cosPlusSin(i, n), std::cos(angle) + std::sin(angle),
                  2e-15)
          << i << " of " << n;
    }
}

TEST(Rotation, TurnsLanesAlike) {
  constexpr int64_t size = 160, lanes = 5;
  const Rotation rotation(size);
  Random random(3);
  std::vector<double> x(size * lanes);
  for (double &value : x)
    value = random.values(1)[0];
  std::vector<double> turned = x, back = x;
  rotation.turn(turned.data(), lanes);
  rotation.turnBack(back.data(), lanes);
  for (size_t lane = 0; lane < lanes; ++lane) {
    std::vector<double> row(size), other(size);
    for (size_t i = 0; i < size; ++i)
      row[i] = other[i] = x[i * lanes + lane];
    rotation.turn(row.data());
    rotation.turnBack(other.data());
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(turned[i * lanes + lane], row[i]);
      ASSERT_EQ(back[i * lanes + lane], other[i]);
    }
  }
}

TEST(Rotation, KernelIsCloseToDoubles) {
  for (int64_t size : {32, 96, 576, 896, 1024}) {
    const Rotation rotation(size);
    const std::vector<float> x = Random(4).values(size);
    const std::vector<float> factor(rotation.factor().begin(),
                                    rotation.factor().end());
    std::vector<float> y(x.size());
    numerics::turn(x.data(), factor.data(), size, y.data());
    std::vector<double> exact(x.begin(), x.end());
    rotation.turnBack(exact.data());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(y[i] * rotation.signs()[i], exact[i], 2e-6) << size;
  }
}
