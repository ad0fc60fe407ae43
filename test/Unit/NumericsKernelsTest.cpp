//===- NumericsKernelsTest.cpp - Reference kernels against others ---------===//
//
// The reference kernels define the project's results; here they are held
// against the same functions in double precision.
//
//===----------------------------------------------------------------------===//

#include "NumericsRandom.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace qwen;
namespace ref = qwen::numerics;

static const auto linearF32 =
    ref::reference<KernelOp::LinearF32>(KernelFormat::F32);
static const auto appendKF32 =
    ref::reference<KernelOp::AppendK>(KernelFormat::F32);
static const auto appendKF16 =
    ref::reference<KernelOp::AppendK>(KernelFormat::F16);
static const auto appendVF32 =
    ref::reference<KernelOp::AppendV>(KernelFormat::F32);
static const auto appendVF16 =
    ref::reference<KernelOp::AppendV>(KernelFormat::F16);

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
      : m(m), k(k), n(panels * kPanelOutputs) {
    Random random(7);
    w = random.values(n * k);
    x = random.values(m * k);
    bias = random.values(n);
    residual = random.values(m * n);
    pack(format);
  }

  void pack(WeightFormat format) {
    packed.resize(static_cast<size_t>(packedBytes(format, n, k)));
    for (int64_t p = 0; p < n / kPanelOutputs; ++p) {
      const float *rows[kPanelOutputs];
      for (int64_t r = 0; r < kPanelOutputs; ++r)
        rows[r] = w.data() + (p * kPanelOutputs + r) * k;
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
  linearF32(p.x.data(), p.packed.data(), p.bias.data(), p.residual.data(),
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
    ref::reference<KernelOp::LinearF32>(kernelFormat(format))(
        p.x.data(), p.packed.data(), p.bias.data(), p.residual.data(),
        out.data(), p.m, p.k, p.n, 0, 2);
  }
  EXPECT_EQ(outs[0], outs[1]);
}

/// A product with quantized weights, beside their values.
static void checkQuantized(WeightFormat format) {
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
  ref::reference<KernelOp::LinearQ8>(kernelFormat(format))(
      q.data(), d.data(), sums.data(), p.packed.data(), p.bias.data(),
      p.residual.data(), out.data(), p.m, p.k, p.n, 0, 2);
  std::vector<float> w(size_t(p.n * p.k));
  for (int64_t j = 0; j < p.n; ++j)
    ref::reference<KernelOp::Embed>(kernelFormat(format))(
        p.packed.data(), static_cast<int32_t>(j), p.k, w.data() + j * p.k);
  p.check(
      out, [&](int64_t j, int64_t l) { return w[size_t(j * p.k + l)]; },
      [&](int64_t i, int64_t l) {
        return double{d[size_t(i * blocks + l / 128)]} * q[size_t(i * p.k + l)];
      });
}

TEST(Linear, Quantized) {
  for (WeightFormat format : kWeightFormats)
    if (isQuantized(format))
      checkQuantized(format);
}

TEST(Linear, ComputesOnlyItsPanels) {
  const Product p(WeightFormat::F32, 2, 32, 3);
  std::vector<float> all(size_t(p.m * p.n)), part(size_t(p.m * p.n), kNaN);
  linearF32(p.x.data(), p.packed.data(), nullptr, nullptr, all.data(), p.m, p.k,
            p.n, 0, 3);
  linearF32(p.x.data(), p.packed.data(), nullptr, nullptr, part.data(), p.m,
            p.k, p.n, 1, 2);
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
  linearF32(x.data(), reinterpret_cast<const uint8_t *>(w.data()), bias.data(),
            residual.data(), out.data(), 1, 32, 16, 0, 1);
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
  ref::reference<KernelOp::AttentionScores>(KernelFormat::F32)(
      q.data(), page.data(), 0.125f, s.data(), groups, headDim, n, nullptr);
  ref::reference<KernelOp::AttentionScores>(KernelFormat::F16)(
      q.data(), page16.data(), 0.125f, s16.data(), groups, headDim, n, nullptr);
  ref::reference<KernelOp::AttentionValues>(KernelFormat::F32)(
      s.data(), page.data(), o.data(), groups, headDim, n, nullptr);
  ref::reference<KernelOp::AttentionValues>(KernelFormat::F16)(
      s16.data(), page16.data(), o16.data(), groups, headDim, n, nullptr);
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
            appendKF32(x.data(), 160, 0, slots.data()),
            appendKF16(x.data(), 160, 0, slots.data()),
            appendVF32(x.data(), 160, 0, slots.data()),
            appendVF16(x.data(), 160, 0, slots.data()),
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
  EXPECT_EQ(appendKF16(x.data(), 3, 5, half.data()), 0);
  EXPECT_EQ(half[5], f32ToF16(1.5f));
  EXPECT_EQ(half[64 + 5], f32ToF16(-2.0f));
  EXPECT_EQ(half[128 + 5], 0x7bff);
  EXPECT_EQ(std::count(half.begin(), half.end(), 0xeeee), 3 * 64 - 3);
  EXPECT_EQ(appendVF16(x.data(), 3, 0, half.data()), 0);
  EXPECT_EQ(half[1], f32ToF16(-2.0f));
  EXPECT_EQ(appendVF16(x.data(), 3, 7, half.data()), 0);
  EXPECT_EQ(half[7 * 3 + 1], f32ToF16(-2.0f));
  std::vector<float> single(3 * 64, -1.0f);
  EXPECT_EQ(appendKF32(x.data(), 3, 0, single.data()), 0);
  EXPECT_EQ(single[128], 65519.0f);
  EXPECT_EQ(appendVF32(x.data(), 3, 0, single.data()), 0);
  EXPECT_EQ(single[2], 65519.0f);
  for (float large : {65520.0f, -65520.0f, 1e30f}) {
    EXPECT_EQ(appendKF16(&large, 1, 0, half.data()), 1);
    EXPECT_EQ(appendVF16(&large, 1, 0, half.data()), 1);
    EXPECT_EQ(appendVF32(&large, 1, 0, single.data()), 0);
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
    ref::softmaxPage(s.data(), 1, n, p.data(), &m, &l);
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
  ref::softmaxPage(s.data(), 1, 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f);
  s[16] = s[32] = -200.0f;
  s[1] = s[17] = -16.7f; // lane 1
  ref::softmaxPage(s.data(), 1, 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f + 0x1p-23f);
  s[1] = s[17] = -200.0f;
  s[4] = s[12] = -16.7f; // the tree's first level
  ref::softmaxPage(s.data(), 1, 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f + 0x1p-23f);
  s[4] = s[12] = -200.0f;
  s[8] = s[4] = -16.7f; // lane 8 joins lane 0 before lane 4 does
  ref::softmaxPage(s.data(), 1, 64, p.data(), &m, &l);
  EXPECT_EQ(l, 1.0f);
}

/// The state of heads of one value as the merging kernel takes it.
static std::vector<float> stateOf(const std::vector<float> &m,
                                  const std::vector<float> &l,
                                  const std::vector<float> &o) {
  std::vector<float> state(2 * kStateQueries, kNaN);
  std::ranges::copy(m, state.begin());
  std::ranges::copy(l, state.begin() + kStateQueries);
  state.insert(state.end(), o.begin(), o.end());
  return state;
}

TEST(Softmax, MergesPages) {
  const std::vector<float> mOld = {0.5f, -1.0f}, lOld = {3, 4},
                           oOld = {1, -2, 5, 6}, m = {-1.0f, 0.5f}, l = {2, 7},
                           o = {0.5f, 4, -3, 1};
  std::vector<float> merged(2 * kStateQueries + 4);
  ref::mergePage(stateOf(mOld, lOld, oOld).data(), stateOf(m, l, o).data(), 2,
                 2, merged.data());
  for (size_t r = 0; r < 2; ++r) {
    const double a = std::exp(double{mOld[r]} - 0.5),
                 b = std::exp(double{m[r]} - 0.5);
    EXPECT_EQ(merged[r], 0.5f);
    const float lNew = merged[kStateQueries + r];
    EXPECT_NEAR(lNew, lOld[r] * a + l[r] * b, 1e-6);
    const float *oNew = &merged[2 * kStateQueries + 2 * r];
    float y[2];
    ref::finishAttention(oNew, lNew, 2, y);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(oNew[i], oOld[2 * r + i] * a + o[2 * r + i] * b, 1e-6);
      EXPECT_EQ(y[i], oNew[i] / lNew);
    }
  }
}

TEST(Softmax, ZeroMaximumIsPositive) {
  const std::vector<float> s(64, -0.0f);
  std::vector<float> p(64);
  float m, l;
  ref::softmaxPage(s.data(), 1, 3, p.data(), &m, &l);
  EXPECT_FALSE(std::signbit(m));
  std::vector<float> merged(2 * kStateQueries + 1);
  ref::mergePage(stateOf({-1}, {1}, {1}).data(),
                 stateOf({-0.0f}, {l}, {1}).data(), 1, 1, merged.data());
  EXPECT_FALSE(std::signbit(merged[0]));
}

TEST(Softmax, FirstPageIsTakenAsItIs) {
  std::vector<float> merged(2 * kStateQueries + 2);
  ref::mergePage(stateOf({-kInf}, {0}, {0, 0}).data(),
                 stateOf({1.25f}, {2.7f}, {0.3f, -4}).data(), 1, 2,
                 merged.data());
  EXPECT_EQ(merged[0], 1.25f);
  EXPECT_EQ(merged[kStateQueries], 2.7f);
  EXPECT_EQ(merged[2 * kStateQueries], 0.3f);
  EXPECT_EQ(merged[2 * kStateQueries + 1], -4.0f);
}

/// The state of a value head in double precision.
static std::vector<double> deltaRule(const std::vector<float> &q,
                                     const std::vector<float> &k,
                                     const std::vector<float> &v, double decay,
                                     double beta, std::vector<double> &state) {
  const auto inverse = [](const std::vector<float> &x) {
    double squares = 1e-6;
    for (float value : x)
      squares += double{value} * value;
    return 1 / std::sqrt(squares);
  };
  const double ofQuery = inverse(q) / std::sqrt(static_cast<double>(q.size()));
  const double ofKey = inverse(k);
  std::vector<double> result;
  for (size_t j = 0; j < v.size(); ++j) {
    double change = v[j], read = 0;
    for (size_t i = 0; i < k.size(); ++i)
      change -= decay * state[i * v.size() + j] * k[i] * ofKey;
    for (size_t i = 0; i < k.size(); ++i) {
      double &s = state[i * v.size() + j];
      s = decay * s + k[i] * ofKey * beta * change;
      read += s * q[i] * ofQuery;
    }
    result.push_back(read);
  }
  return result;
}

TEST(DeltaRule, IsThatOfDoublePrecision) {
  const int64_t keyDim = 64, valueDim = 32;
  Random random(19);
  std::vector<float> state(size_t(keyDim * valueDim)), read(size_t{32});
  std::vector<double> exact(state.size());
  double worst = 0, largest = 0;
  for (int token = 0; token < 300; ++token) {
    const std::vector<float> q = random.values(keyDim),
                             k = random.values(keyDim),
                             v = random.values(valueDim);
    const float decay = 1 - std::fabs(random.value()) * 0.2f;
    const float beta = std::fabs(random.value());
    ref::deltaRule(q.data(), k.data(), v.data(), 0, &decay, 0, &beta, 0, 1,
                   keyDim, 0.125f, state.data(), read.data(), 0, nullptr);
    const auto expected = deltaRule(q, k, v, decay, beta, exact);
    for (size_t j = 0; j < read.size(); ++j) {
      worst = std::max(worst, std::fabs(read[j] - expected[j]));
      largest = std::max(largest, std::fabs(expected[j]));
    }
  }
  EXPECT_GT(largest, 0.05);
  EXPECT_LT(worst, 3e-7);
}

TEST(DeltaRule, GatesAndConvolutionAreThoseOfDoublePrecision) {
  Random random(23);
  const int64_t n = 21;
  const auto a = random.values(n, 20), b = random.values(n, 20),
             bias = random.values(n, 4), weights = random.values(4 * n);
  auto rate = random.values(n, 3);
  for (float &value : rate)
    value = std::fabs(value);
  std::vector<float> decay(size_t{n}), beta(decay), state(size_t{3 * n});
  ref::deltaGates(a.data(), b.data(), rate.data(), bias.data(), n, decay.data(),
                  beta.data());
  std::vector<std::vector<float>> inputs(3, std::vector<float>(size_t{n}));
  for (size_t i = 0; i < size_t{n}; ++i) {
    const double open = std::log1p(std::exp(double{a[i]} + bias[i]));
    EXPECT_NEAR(decay[i], std::exp(-rate[i] * open), 1e-6);
    EXPECT_NEAR(beta[i], 1 / (1 + std::exp(-double{b[i]})), 1e-6);
  }
  for (int token = 0; token < 6; ++token) {
    inputs.push_back(random.values(n, 3));
    std::vector<float> y(size_t{n});
    ref::shortConvolution(inputs.back().data(), 0, weights.data(), 1, n, n,
                          state.data(), y.data(), 0);
    for (size_t c = 0; c < size_t{n}; ++c) {
      double sum = 0;
      for (size_t j = 0; j < 4; ++j)
        sum += double{weights[4 * c + j]} * inputs[inputs.size() - 4 + j][c];
      EXPECT_NEAR(y[c], sum / (1 + std::exp(-sum)), 2e-6);
    }
  }
}

TEST(Kernels, EveryKernelHasAReference) {
  for (const KernelInfo &kernel : kernelTable())
    visitKernelOp(kernel.op, [&]<KernelOp Op>() {
      EXPECT_NE(ref::reference<Op>(kernel.format), nullptr) << kernel.name;
    });
  EXPECT_EQ(ref::reference<KernelOp::Rope>(), ref::rope);
  EXPECT_EQ(ref::reference<KernelOp::Embed>(KernelFormat::F16), nullptr);
}
