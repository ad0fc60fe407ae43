//===- IntegerCacheTest.cpp - Keys and values in integers -----------------===//

#include "NumericsRandom.h"
#include "qwen/Numerics/Kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace qwen;
namespace ref = qwen::numerics;

TEST(IntegerCache, FlagsValuesAndTransformsThatAreNotFinite) {
  constexpr auto kQ8 = KernelFormat::Q8;
  const auto encodeQuery = ref::reference<KernelOp::EncodeQuery>(kQ8);
  const auto appendK = ref::reference<KernelOp::AppendK>(kQ8);
  const auto appendV = ref::reference<KernelOp::AppendV>(kQ8);
  std::vector<float> x(64, 1.0f);
  std::vector<uint8_t> page(
      static_cast<size_t>(layoutOf(KvFormat::Q8).headBytes(64)));
  EXPECT_EQ(encodeQuery(x.data(), 64, page.data()), 0);
  // Both are finite, and their sum is not.
  x[0] = x[1] = 3e38f;
  EXPECT_EQ(encodeQuery(x.data(), 64, page.data()), 1);
  EXPECT_EQ(appendK(x.data(), 64, 0, page.data()), 1);
  EXPECT_EQ(appendV(x.data(), 64, 0, page.data()), 0);
  for (float bad : {kNaN, kInf, -kInf}) {
    x[1] = bad;
    EXPECT_EQ(encodeQuery(x.data(), 64, page.data()), 1);
    EXPECT_EQ(appendK(x.data(), 64, 0, page.data()), 1);
    EXPECT_EQ(appendV(x.data(), 64, 0, page.data()), 1);
  }
}

namespace {
/// A page of random keys and values, with attention of one query over it.
struct IntegerPage {
  IntegerPage(int64_t headDim, int64_t n, float size, Random &random)
      : headDim(headDim), n(n), query(random.values(headDim, 2.0f)),
        codes(static_cast<size_t>(KvQuery::bytes(headDim))),
        kPage(static_cast<size_t>(layoutOf(KvFormat::Q8).headBytes(headDim)),
              0xff),
        vPage(kPage) {
    ref::reference<KernelOp::EncodeQuery>(kFormat)(query.data(), headDim,
                                                   codes.data());
    for (int64_t slot = 0; slot < n; ++slot) {
      keys.push_back(random.values(headDim, 2.0f));
      values.push_back(random.values(headDim, size));
      ref::reference<KernelOp::AppendK>(kFormat)(keys.back().data(), headDim,
                                                 slot, kPage.data());
      ref::reference<KernelOp::AppendV>(kFormat)(values.back().data(), headDim,
                                                 slot, vPage.data());
    }
  }

  std::vector<float> scores(float scale) const {
    std::vector<float> s(kPageTokens);
    ref::reference<KernelOp::AttentionScores>(kFormat)(
        codes.data(), kPage.data(), scale, s.data(), 1, headDim, n, nullptr);
    return s;
  }
  std::vector<float> output(const std::vector<float> &p) const {
    std::vector<float> o(static_cast<size_t>(headDim));
    ref::reference<KernelOp::AttentionValues>(kFormat)(
        p.data(), vPage.data(), o.data(), 1, headDim, n, nullptr);
    return o;
  }

  static constexpr auto kFormat = KernelFormat::Q8;
  int64_t headDim, n;
  std::vector<float> query;
  std::vector<std::vector<float>> keys, values;
  std::vector<uint8_t> codes, kPage, vPage;
};
} // namespace

TEST(IntegerCache, IsNearTheProductsOfFloats) {
  Random random(21);
  for (int64_t headDim : {8, 24, 64, 80, 128, 256})
    for (int64_t n : {1, 17, 64}) {
      const IntegerPage page(headDim, n, 3.0f, random);
      const float scale = 1 / std::sqrt(static_cast<float>(headDim));
      const std::vector<float> s = page.scores(scale);
      std::vector<float> p(kPageTokens);
      for (int64_t j = 0; j < n; ++j) {
        const auto slot = static_cast<size_t>(j);
        double dot = 0;
        for (size_t i = 0; i < page.query.size(); ++i)
          dot += double{page.query[i]} * page.keys[slot][i];
        // Each of the factors has an error of half of 1/127 of its largest.
        EXPECT_NEAR(s[slot], dot * scale, 0.12) << headDim << ' ' << n;
        p[slot] = std::fabs(random.values(1, 1.0f).front());
      }
      const std::vector<float> o = page.output(p);
      for (size_t i = 0; i < o.size(); ++i) {
        double sum = 0;
        for (size_t j = 0; j < page.values.size(); ++j)
          sum += double{p[j]} * page.values[j][i];
        EXPECT_NEAR(o[i], sum, 0.02 * static_cast<double>(n) + 0.02)
            << headDim << ' ' << n;
      }
    }
}

TEST(IntegerCache, WeightsOfTinyValuesAreZeros) {
  Random random(22);
  for (float size : {0.0f, 0x1p-110f, 0x1p-98f}) {
    const IntegerPage page(64, 5, size, random);
    const std::vector<float> o =
        page.output(std::vector<float>(kPageTokens, 1.0f));
    for (float value : o)
      EXPECT_LE(std::fabs(value), 6 * size);
  }
}
