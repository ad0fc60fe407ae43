//===- NumericsBitsTest.cpp - The reference is one on all machines --------===//
//
// KernelTest compares kernels with the reference on the same machine. This test
// pins the bits of each reference function on fixed operands by a checksum,
// which is the same for every architecture and compiler. A change of a checksum
// needs a change of docs/numerics.md and a new format version.
//
//===----------------------------------------------------------------------===//

#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Verify/RandomValues.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;
namespace ref = qwen::numerics;

/// Collects the bytes of results.
class Bits {
public:
  template <typename T> void add(const T *values, int64_t n) {
    const auto *first = reinterpret_cast<const uint8_t *>(values);
    bytes.insert(bytes.end(), first, first + n * int64_t{sizeof(T)});
  }
  template <typename T> void add(T value) { add(&value, 1); }
  template <typename T> void add(const std::vector<T> &values) {
    add(values.data(), static_cast<int64_t>(values.size()));
  }
  uint64_t checksum() const { return XXH3_64bits(bytes.data(), bytes.size()); }

private:
  std::vector<uint8_t> bytes;
};

static std::vector<float> draw(Random &random, int64_t n, Values kind) {
  std::vector<float> result(static_cast<size_t>(n));
  for (float &x : result)
    x = random.value(kind);
  return result;
}

TEST(NumericsBits, Exp) {
  Bits bits;
  for (float x = -90.0f; x < 90.0f; x += 0x1p-7f)
    bits.add(ref::exp(x));
  EXPECT_EQ(bits.checksum(), 1276304748840144641u);
}

TEST(NumericsBits, RopeTable) {
  Bits bits;
  std::vector<float> invFreq(64), cos(64), sin(64);
  for (int64_t i = 0; i < 64; ++i)
    invFreq[static_cast<size_t>(i)] = ref::ropeInvFreq(1e6, i, 128);
  for (int32_t position = 0; position < 40960; position += 91) {
    ref::ropeTable(position, invFreq.data(), 64, cos.data(), sin.data());
    bits.add(cos);
    bits.add(sin);
  }
  EXPECT_EQ(bits.checksum(), 17530131807495107708u);
}

TEST(NumericsBits, Yarn) {
  Bits bits;
  const Yarn yarn = {.factor = 4, .positions = 32768};
  for (double theta : {1e4, 1e6, 5e6})
    for (int64_t i = 0; i < 64; ++i)
      bits.add(ref::yarnInvFreq(theta, i, 128, yarn));
  EXPECT_EQ(bits.checksum(), 7553568539056432926u);
  // The logarithm of the C library is an ulp more in both.
  EXPECT_EQ(ref::yarnAttentionFactor(44.75), 0x1.614ed5386b0bep+0);
  EXPECT_EQ(ref::yarnAttentionFactor(48), 0x1.631a4d8dcf24ap+0);
}

TEST(NumericsBits, Linear) {
  const int64_t m = 3, k = 288, n = 32, blocks = 3;
  for (const auto &[format, want] :
       {std::pair{WeightFormat::F32, uint64_t{12726237348322825868u}},
        {WeightFormat::BF16, uint64_t{8598734517420779336u}},
        {WeightFormat::Q8_0, uint64_t{9683957334796462359u}},
        {WeightFormat::Q4_0, uint64_t{6689604671082016170u}},
        {WeightFormat::Q4_G128, uint64_t{14805508560644941697u}}}) {
    Random random(1);
    const auto w = draw(random, n * k, Values::Magnitudes);
    const auto x = draw(random, m * k, Values::Magnitudes);
    const auto bias = draw(random, n, Values::Uniform);
    const auto residual = draw(random, m * n, Values::Uniform);
    std::vector<uint8_t> packed(size_t(packedBytes(format, n, k)));
    for (int64_t p = 0; p < n / kPanelOutputs; ++p) {
      const float *rows[kPanelOutputs];
      for (int64_t r = 0; r < kPanelOutputs; ++r)
        rows[r] = w.data() + (p * kPanelOutputs + r) * k;
      ASSERT_EQ(ref::packPanel(format, rows, k,
                               packed.data() + p * panelBytes(format, k)),
                ref::EncodeStatus::Ok);
    }
    std::vector<float> out(size_t(m * n)), row(static_cast<size_t>(k));
    Bits bits;
    bits.add(packed);
    if (!isQuantized(format)) {
      ref::reference<KernelOp::LinearF32>(kernelFormat(format))(
          x.data(), packed.data(), bias.data(), residual.data(), out.data(), m,
          k, n, 0, n / kPanelOutputs);
    } else {
      std::vector<int8_t> q(size_t(m * k));
      std::vector<float> d(size_t(m * blocks));
      std::vector<int32_t> sums(size_t(m * k / kGroup));
      for (int64_t i = 0; i < m; ++i)
        ASSERT_EQ(ref::quantizeQ8(x.data() + i * k, k, q.data() + i * k,
                                  d.data() + i * blocks,
                                  sums.data() + i * k / kGroup),
                  0);
      bits.add(q);
      bits.add(d);
      bits.add(sums);
      ref::reference<KernelOp::LinearQ8>(kernelFormat(format))(
          q.data(), d.data(), sums.data(), packed.data(), bias.data(),
          residual.data(), out.data(), m, k, n, 0, n / kPanelOutputs);
    }
    ref::reference<KernelOp::Embed>(kernelFormat(format))(packed.data(), 17, k,
                                                          row.data());
    bits.add(out);
    bits.add(row);
    EXPECT_EQ(bits.checksum(), want) << weightFormatName(format);
  }
}

TEST(NumericsBits, Rows) {
  Bits bits;
  Random random(2);
  const int64_t k = 128, half = 20;
  for (Values kind :
       {Values::Uniform, Values::Magnitudes, Values::Subnormals}) {
    const auto x = draw(random, k, kind), w = draw(random, k, Values::Uniform);
    std::vector<float> y(k), d(1);
    std::vector<int8_t> q(k);
    std::vector<int32_t> sums(4);
    ref::rmsNormF32(x.data(), w.data(), k, 1e-6f, y.data());
    bits.add(y);
    ASSERT_EQ(
        ref::swiGluQ8(x.data(), w.data(), k, q.data(), d.data(), sums.data()),
        0);
    bits.add(q);
    bits.add(d);
    bits.add(sums);
    ref::swiGluF32(x.data(), w.data(), k, y.data());
    bits.add(y);
    ref::normRope(x.data(), w.data(), w.data(), w.data() + half, half, 1e-6f,
                  y.data());
    bits.add(y);
    std::vector<uint16_t> slots(k);
    ASSERT_EQ(ref::reference<KernelOp::AppendV>(KernelFormat::F16)(
                  x.data(), k, 0, slots.data()),
              0);
    bits.add(slots);
  }
  EXPECT_EQ(bits.checksum(), 7340957716460922903u);
}

TEST(NumericsBits, Hadamard) {
  Bits bits;
  Random random(5);
  for (Values kind :
       {Values::Uniform, Values::Magnitudes, Values::Subnormals}) {
    const auto x = draw(random, 352, kind);
    std::vector<float> y(x.size());
    ref::hadamard(x.data(), std::ssize(x), y.data());
    bits.add(y);
  }
  EXPECT_EQ(bits.checksum(), 5403323424271220718u);
}

TEST(Hadamard, IsTheProductWithItsMatrices) {
  // Integers, whose sums are exact.
  std::vector<float> x(352), y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i * i % 23) - 11;
  ref::hadamard(x.data(), std::ssize(x), y.data());
  size_t begin = 0;
  for (size_t size : {128, 128, 64, 32}) {
    for (size_t i = 0; i < size; ++i) {
      float want = 0;
      for (size_t j = 0; j < size; ++j)
        want += std::popcount(i & j) % 2 ? -x[begin + j] : x[begin + j];
      ASSERT_EQ(y[begin + i], want);
    }
    begin += size;
  }
}

TEST(NumericsBits, Attention) {
  Bits bits;
  Random random(3);
  const int64_t groups = 2, headDim = 40;
  const auto q = draw(random, groups * headDim, Values::Uniform);
  std::vector<uint16_t> page(headDim * kPageTokens);
  for (uint16_t &value : page)
    value = f32ToF16(random.value(Values::Uniform));
  for (int64_t n : {1, 15, 33, 64}) {
    std::vector<float> s(groups * kPageTokens), p(s), o(groups * headDim),
        merged, y(headDim);
    ref::reference<KernelOp::AttentionScores>(KernelFormat::F16)(
        q.data(), page.data(), 3.0f, s.data(), groups, headDim, n, nullptr);
    float m[groups], l[groups];
    ref::softmaxPage(s.data(), groups, n, p.data(), m, l);
    ref::reference<KernelOp::AttentionValues>(KernelFormat::F16)(
        p.data(), page.data(), o.data(), groups, headDim, n, nullptr);
    std::vector<float> states[3];
    for (std::vector<float> &state : states)
      state.resize(2 * kStateQueries + headDim);
    for (size_t r = 0; r < 2; ++r) {
      states[r][0] = m[r];
      states[r][kStateQueries] = l[r];
      std::copy_n(&o[r * headDim], headDim, &states[r][2 * kStateQueries]);
    }
    ref::mergePage(states[0].data(), states[1].data(), 1, headDim,
                   states[2].data());
    const float lNew = states[2][kStateQueries];
    merged.assign(states[2].begin() + 2 * kStateQueries, states[2].end());
    ref::finishAttention(merged.data(), lNew, headDim, y.data());
    for (const std::vector<float> &result : {s, p, o, merged, y})
      bits.add(result);
    bits.add(lNew);
  }
  EXPECT_EQ(bits.checksum(), 2314610401331563358u);
}
