//===- KernelTest.cpp - Generated kernels against the reference -----------===//
//
// Every row of the kernel table that this machine can run, from each of the
// files of kernels named in QWEN_KERNELS (separated by ':'), must compute what
// its reference computes: bit for bit, and without touching other memory.
//
//===----------------------------------------------------------------------===//

#include "ElfImage.h"
#include "Guarded.h"
#include "RandomValues.h"
#include "qwen/ABI/Error.h"
#include "qwen/Reference/Float16.h"
#include "qwen/Reference/Kernels.h"
#include "qwen/Reference/Math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

using namespace qwen;
namespace ref = qwen::reference;

static constexpr float kInf = std::numeric_limits<float>::infinity();
static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
static constexpr float kMax = std::numeric_limits<float>::max();

/// Values along K: less than a block, whole blocks, and shorter last blocks.
static constexpr int64_t kDepths[] = {32,  64,  96,  128, 160, 192,
                                      224, 256, 288, 416, 896, 1056};

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

static bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}
template <typename T> static bool same(T a, T b) { return a == b; }

template <typename T>
static void expectSame(const Guarded<T> &got, const Guarded<T> &want,
                       const char *what) {
  for (int64_t i = 0; i < want.length(); ++i)
    ASSERT_TRUE(same(got[i], want[i]))
        << what << "[" << i << "] is " << std::hexfloat << +got[i]
        << " when the reference has " << +want[i];
}

#define TRACE_CASE(Description)                                                \
  SCOPED_TRACE(testing::Message() << std::boolalpha << Description)
/// Runs a check and leaves the calling function after its first failure.
#define CHECK_CASE(Statement)                                                  \
  do {                                                                         \
    Statement;                                                                 \
    if (testing::Test::HasFatalFailure())                                      \
      return;                                                                  \
  } while (false)

//===----------------------------------------------------------------------===//
// Linear
//===----------------------------------------------------------------------===//

namespace {
struct LinearShape {
  int64_t m, k, panels, panelBegin, panelEnd, ld;
  bool bias, residual;
  /// The residual is the output's memory.
  bool inPlace;
};

/// Operands of both kinds of linear kernels.
struct LinearOperands {
  LinearShape shape;
  Guarded<float> x, d, bias, residual;
  Guarded<int8_t> q;
  Guarded<int32_t> sums;
  Guarded<uint8_t> weights;

  LinearOperands(const LinearShape &shape, WeightFormat format, Values kind,
                 Random &random)
      : shape(shape), x(random.floats(shape.m * shape.k, kind)),
        d(shape.m * ceilDiv(shape.k, kActivationBlock)),
        bias(random.floats(shape.panels * kPanelRows)),
        residual(random.floats(shape.m * shape.ld)), q(shape.m * shape.k),
        sums(shape.m * shape.k / kGroup),
        weights(packedBytes(format, shape.panels * kPanelRows, shape.k)) {
    if (format == WeightFormat::F32)
      fillFloatWeights(kind, random);
    else
      fillQuantized(format, kind, random);
  }

private:
  void fillFloatWeights(Values kind, Random &random) {
    for (int64_t i = 0; i < weights.length(); i += 4) {
      const float w = random.value(kind);
      std::memcpy(&weights[i], &w, 4);
    }
  }

  void fillQuantized(WeightFormat format, Values kind, Random &random) {
    const bool saturated = kind == Values::Edges;
    for (int64_t i = 0; i < q.length(); ++i) {
      const int64_t value = saturated ? (random.below(2) != 0 ? 127 : -127)
                            : kind == Values::Zeros ? 0
                                                    : random.below(255) - 127;
      q[i] = static_cast<int8_t>(value);
      sums[i / kGroup] += q[i];
    }
    for (float &scale : d)
      scale = std::fabs(random.value(kind));
    for (int64_t i = 0; i < weights.length(); ++i) {
      // Of nibbles and of int8.
      static constexpr uint8_t extremes[] = {0x00, 0xff, 0x0f,
                                             0xf0, 0x80, 0x7f};
      weights[i] = saturated ? extremes[random.below(6)]
                             : static_cast<uint8_t>(random.bits());
    }
    for (int64_t panel = 0; panel < shape.panels; ++panel)
      for (int64_t i = 0; i < shape.k; i += weightBlock(format))
        for (int64_t r = 0; r < kPanelRows; ++r) {
          const uint16_t scale = random.half();
          std::memcpy(
              &weights[panel * panelBytes(format, shape.k) +
                       i / weightBlock(format) * panelBlockBytes(format) +
                       2 * r],
              &scale, 2);
        }
  }
};
} // namespace

/// Calls a kernel for rows [begin, end) of the operands.
static void callLinear(LinearF32Fn *fn, const LinearOperands &o,
                       const float *residual, float *out, int64_t begin,
                       int64_t end) {
  const LinearShape &s = o.shape;
  fn(o.x.data() + begin * s.k, o.weights.data(),
     s.bias ? o.bias.data() : nullptr,
     residual != nullptr ? residual + begin * s.ld : nullptr,
     out + begin * s.ld, end - begin, s.k, s.ld, s.panelBegin, s.panelEnd);
}

static void callLinear(LinearQ8Fn *fn, const LinearOperands &o,
                       const float *residual, float *out, int64_t begin,
                       int64_t end) {
  const LinearShape &s = o.shape;
  fn(o.q.data() + begin * s.k,
     o.d.data() + begin * ceilDiv(s.k, kActivationBlock),
     o.sums.data() + begin * s.k / kGroup, o.weights.data(),
     s.bias ? o.bias.data() : nullptr,
     residual != nullptr ? residual + begin * s.ld : nullptr,
     out + begin * s.ld, end - begin, s.k, s.ld, s.panelBegin, s.panelEnd);
}

/// Computes all rows: the multiple of `tile` with `gemm`, the rest with `gemv`.
template <typename Fn>
static Guarded<float> runLinear(Fn *gemm, int64_t tile, Fn *gemv,
                                const LinearOperands &o) {
  const LinearShape &s = o.shape;
  Guarded<float> out(s.m * s.ld, -77.0f);
  if (s.inPlace)
    std::copy(o.residual.begin(), o.residual.end(), out.begin());
  const float *residual = !s.residual ? nullptr
                          : s.inPlace ? out.data()
                                      : o.residual.data();
  const int64_t whole = s.m / tile * tile;
  if (whole > 0)
    callLinear(gemm, o, residual, out.data(), 0, whole);
  if (whole < s.m)
    callLinear(gemv, o, residual, out.data(), whole, s.m);
  return out;
}

template <typename Fn>
static void checkLinear(const KernelInfo &row, Fn *kernel, Fn *gemv,
                        Fn *reference) {
  const WeightFormat format = *weightFormat(row.format);
  static constexpr int64_t ranges[][3] = {{1, 0, 1}, {2, 0, 2}, {3, 1, 2},
                                          {3, 0, 3}, {2, 1, 2}, {3, 1, 3},
                                          {3, 2, 2}};
  Random random(1);
  int64_t turn = 0;
  for (int64_t k : kDepths)
    for (int64_t m = 1; m <= 18; ++m) {
      const int64_t count = m == 18 ? 64 : m;
      const int64_t *range = ranges[turn % 7];
      const Values kind = kValues[turn % 5]; // sums of Large ones overflow
      const int64_t epilogue = turn % 6;
      const LinearShape shape = {count,
                                 k,
                                 range[0],
                                 range[1],
                                 range[2],
                                 (range[0] + turn % 2) * kPanelRows,
                                 epilogue % 2 == 1,
                                 epilogue >= 2,
                                 epilogue >= 4};
      ++turn;
      TRACE_CASE("m " << count << ", k " << k << ", panels [" << range[1]
                      << ", " << range[2] << ") of " << range[0] << ", bias "
                      << shape.bias << ", residual " << shape.residual
                      << ", in place " << shape.inPlace << ", values "
                      << static_cast<int>(kind));
      const LinearOperands operands(shape, format, kind, random);
      CHECK_CASE(expectSame(runLinear(kernel, row.m, gemv, operands),
                            runLinear(reference, 1, reference, operands),
                            "out"));
    }
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// A page of the cache in which only what `visible` says is a number.
template <typename Visible>
static Guarded<uint8_t> makePage(KernelFormat format, int64_t count,
                                 Random &random, Visible visible) {
  const bool f32 = format == KernelFormat::F32;
  Guarded<uint8_t> page(count * (f32 ? 4 : 2));
  for (int64_t i = 0; i < count; ++i) {
    const float value = visible(i) ? random.value(Values::Magnitudes) : kNaN;
    const uint16_t half = f32ToF16(value);
    if (f32)
      std::memcpy(&page[i * 4], &value, 4);
    else
      std::memcpy(&page[i * 2], &half, 2);
  }
  return page;
}

static void checkScoresCase(KernelFormat format, AttentionScoresFn *kernel,
                            AttentionScoresFn *reference, int64_t groups,
                            int64_t headDim, int64_t n, Random &random) {
  TRACE_CASE("groups " << groups << ", head_dim " << headDim << ", n " << n);
  const Guarded<float> q = random.floats(groups * headDim, Values::Magnitudes);
  const Guarded<uint8_t> page =
      makePage(format, headDim * kPageTokens, random,
               [&](int64_t i) { return i % kPageTokens < n; });
  const float scale = 1.0f / std::sqrt(static_cast<float>(headDim));
  Guarded<float> want(groups * kPageTokens), got(want);
  reference(q.data(), page.data(), scale, want.data(), groups, headDim, n);
  kernel(q.data(), page.data(), scale, got.data(), groups, headDim, n);
  for (int64_t i = 0; i < got.length(); ++i)
    if (i % kPageTokens >= n)
      got[i] = want[i];
  expectSame(got, want, "s");
}

static void checkValuesCase(KernelFormat format, AttentionValuesFn *kernel,
                            AttentionValuesFn *reference, int64_t groups,
                            int64_t headDim, int64_t n, Random &random) {
  TRACE_CASE("groups " << groups << ", head_dim " << headDim << ", n " << n);
  Guarded<float> p = random.floats(groups * kPageTokens);
  for (int64_t i = 0; i < p.length(); ++i)
    if (i % kPageTokens >= n)
      p[i] = 0.0f;
  const Guarded<uint8_t> page =
      makePage(format, headDim * kPageTokens, random,
               [&](int64_t i) { return i / headDim < n; });
  Guarded<float> want(groups * headDim, -77.0f), got(want);
  reference(p.data(), page.data(), want.data(), groups, headDim, n);
  kernel(p.data(), page.data(), got.data(), groups, headDim, n);
  expectSame(got, want, "o");
}

/// Every n with some head sizes and every head size with some n.
template <typename Case> static void forEachPage(Case run) {
  int64_t turn = 0;
  for (int64_t headDim = 16; headDim <= 256; headDim += 8)
    for (int64_t n = 1; n <= kPageTokens; ++n) {
      const bool allCounts = headDim == 16 || headDim == 24 || headDim == 64 ||
                             headDim == 80 || headDim == 128;
      const bool allSizes =
          n == 1 || n == 15 || n == 16 || n == 17 || n == 33 || n == 64;
      if (allCounts || allSizes)
        CHECK_CASE(run(1 + turn++ % 8, headDim, n));
    }
}

static void checkScores(const KernelInfo &row, AttentionScoresFn *kernel,
                        AttentionScoresFn *reference) {
  Random random(2);
  forEachPage([&](int64_t groups, int64_t headDim, int64_t n) {
    checkScoresCase(row.format, kernel, reference, groups, headDim, n, random);
  });
}

static void checkValues(const KernelInfo &row, AttentionValuesFn *kernel,
                        AttentionValuesFn *reference) {
  Random random(3);
  forEachPage([&](int64_t groups, int64_t headDim, int64_t n) {
    checkValuesCase(row.format, kernel, reference, groups, headDim, n, random);
  });
}

static void checkSoftmaxPage(SoftmaxPageFn *kernel, SoftmaxPageFn *reference) {
  Random random(4);
  for (int64_t n = 1; n <= kPageTokens; ++n)
    for (Values kind : kValues) {
      TRACE_CASE("n " << n << ", values " << static_cast<int>(kind));
      Guarded<float> s = random.floats(kPageTokens, kind);
      for (int64_t i = n; i < kPageTokens; ++i)
        s[i] = i % 2 == 0 ? kNaN : kMax;
      for (float &x : s)
        x = kind == Values::Uniform ? x * 30.0f : x;
      Guarded<float> want(kPageTokens, kNaN), got(want), wantM(1), gotM(1),
          wantL(1), gotL(1);
      reference(s.data(), n, want.data(), wantM.data(), wantL.data());
      kernel(s.data(), n, got.data(), gotM.data(), gotL.data());
      CHECK_CASE(expectSame(gotM, wantM, "m"));
      CHECK_CASE(expectSame(got, want, "p"));
      CHECK_CASE(expectSame(gotL, wantL, "l"));
    }
}

static void checkMergePage(MergePageFn *kernel, MergePageFn *reference) {
  Random random(5);
  const float maxima[][2] = {{-kInf, 1.5f}, {0.0f, 0.0f},     {3.0f, -2.0f},
                             {-2.0f, 3.0f}, {-200.0f, 50.0f}, {90.0f, -90.0f},
                             {1.0f, 1.5f},  {-0.0f, -0.0f},   {-0.0f, -1.0f}};
  for (int64_t headDim = 16; headDim <= 256; headDim += 8)
    for (const auto &[mOld, m] : maxima) {
      const bool first = mOld == -kInf;
      TRACE_CASE("head_dim " << headDim << ", m " << mOld << " and " << m);
      const Guarded<float> oOld =
          random.floats(headDim, first ? Values::Zeros : Values::Magnitudes);
      const Guarded<float> o = random.floats(headDim, Values::Magnitudes);
      const float lOld = first ? 0.0f : std::fabs(random.uniform()) * 99.0f;
      const float l = 1.0f + std::fabs(random.uniform());
      Guarded<float> want(headDim, kNaN), got(want), wantM(1), gotM(1),
          wantL(1), gotL(1);
      reference(mOld, lOld, oOld.data(), m, l, o.data(), headDim, wantM.data(),
                wantL.data(), want.data());
      kernel(mOld, lOld, oOld.data(), m, l, o.data(), headDim, gotM.data(),
             gotL.data(), got.data());
      CHECK_CASE(expectSame(gotM, wantM, "m"));
      CHECK_CASE(expectSame(gotL, wantL, "l"));
      CHECK_CASE(expectSame(got, want, "o"));
    }
}

static void checkFinishAttention(FinishAttentionFn *kernel,
                                 FinishAttentionFn *reference) {
  Random random(6);
  for (int64_t headDim = 16; headDim <= 256; headDim += 8)
    for (float l : {1.0f, 3.0f, 63.7f, 0x1.fffffep+14f}) {
      TRACE_CASE("head_dim " << headDim << ", l " << l);
      const Guarded<float> o = random.floats(headDim, Values::Magnitudes);
      Guarded<float> want(headDim, kNaN), got(want);
      reference(o.data(), l, headDim, want.data());
      kernel(o.data(), l, headDim, got.data());
      CHECK_CASE(expectSame(got, want, "y"));
    }
}

static void checkAppendCase(const KernelInfo &row, AppendFn *kernel,
                            AppendFn *reference, const Guarded<float> &x,
                            int64_t slot) {
  const int64_t headDim = x.length();
  const int64_t bytes = row.format == KernelFormat::F32 ? 4 : 2;
  const int64_t step = row.op == KernelOp::AppendK ? 1 : headDim;
  Guarded<uint8_t> want(headDim * kPageTokens * bytes, 0xee), got(want);
  const int32_t flag =
      reference(x.data(), headDim, want.data() + slot * step * bytes);
  ASSERT_EQ(kernel(x.data(), headDim, got.data() + slot * step * bytes), flag);
  if (flag == 0)
    expectSame(got, want, "page byte ");
}

static void checkAppend(const KernelInfo &row, AppendFn *kernel,
                        AppendFn *reference) {
  Random random(7);
  int64_t turn = 0;
  for (int64_t headDim = 16; headDim <= 256; headDim += 8)
    for (Values kind : kValues) {
      const int64_t slot = turn++ % kPageTokens;
      TRACE_CASE("head_dim " << headDim << ", slot " << slot << ", values "
                             << static_cast<int>(kind));
      Guarded<float> x = random.floats(headDim, kind);
      CHECK_CASE(checkAppendCase(row, kernel, reference, x, slot));
      for (float bad : {kNaN, -kInf, 65520.0f, -65519.0f}) {
        x[random.below(headDim)] = bad;
        CHECK_CASE(checkAppendCase(row, kernel, reference, x, slot));
        x.fill(1.0f);
      }
    }
}

//===----------------------------------------------------------------------===//
// Rows of activations
//===----------------------------------------------------------------------===//

namespace {
/// What the quantizing kernels write.
struct Quantized {
  Guarded<int8_t> q;
  Guarded<float> d;
  Guarded<int32_t> sums;

  explicit Quantized(int64_t k)
      : q(k, 99), d(ceilDiv(k, kActivationBlock), kNaN), sums(k / kGroup, 99) {}
};
} // namespace

/// Runs `call` with both functions, with the input as it is and with each kind
/// of bad value in it.
template <typename Fn, typename Call>
static void checkQuantizing(Fn *kernel, Fn *reference, int64_t k,
                            Guarded<float> &input, Random &random, Call call) {
  const auto compare = [&] {
    Quantized want(k), got(k);
    const int32_t flag = call(reference, want);
    ASSERT_EQ(call(kernel, got), flag);
    if (flag != 0)
      return;
    CHECK_CASE(expectSame(got.q, want.q, "q"));
    CHECK_CASE(expectSame(got.d, want.d, "d"));
    CHECK_CASE(expectSame(got.sums, want.sums, "sums"));
  };
  CHECK_CASE(compare());
  for (float bad : {kNaN, -kNaN, kInf, -kInf, kMax}) {
    const int64_t at = random.below(input.length());
    TRACE_CASE(bad << " at " << at);
    const float old = input[at];
    input[at] = bad;
    CHECK_CASE(compare());
    input[at] = old;
  }
}

static void checkQuantizeQ8(QuantizeQ8Fn *kernel, QuantizeQ8Fn *reference) {
  Random random(8);
  for (int64_t k : kDepths)
    for (Values kind : kValues)
      for (float scale : {1.0f, 0x1p-100f, 0x1p-99f, 0x1p60f}) {
        TRACE_CASE("k " << k << ", values " << static_cast<int>(kind)
                        << " times " << scale);
        Guarded<float> x = random.floats(k, kind);
        for (float &value : x)
          value *= scale;
        CHECK_CASE(checkQuantizing(kernel, reference, k, x, random,
                                   [&](QuantizeQ8Fn *fn, Quantized &out) {
                                     return fn(x.data(), k, out.q.data(),
                                               out.d.data(), out.sums.data());
                                   }));
      }
}

static void checkRmsNormQ8(RmsNormQ8Fn *kernel, RmsNormQ8Fn *reference) {
  Random random(9);
  for (int64_t k : kDepths)
    for (Values kind : kValues)
      for (float eps : {1e-6f, 1e-5f}) {
        TRACE_CASE("k " << k << ", values " << static_cast<int>(kind)
                        << ", eps " << eps);
        Guarded<float> x = random.floats(k, kind);
        const Guarded<float> w = random.floats(k);
        CHECK_CASE(checkQuantizing(kernel, reference, k, x, random,
                                   [&](RmsNormQ8Fn *fn, Quantized &out) {
                                     return fn(x.data(), w.data(), k, eps,
                                               out.q.data(), out.d.data(),
                                               out.sums.data());
                                   }));
      }
}

static void checkSwiGluQ8(SwiGluQ8Fn *kernel, SwiGluQ8Fn *reference) {
  Random random(10);
  for (int64_t n = kGroup; n <= kActivationBlock; n += kGroup)
    for (Values kind : kValues)
      for (int round = 0; round < 8; ++round) {
        TRACE_CASE("n " << n << ", values " << static_cast<int>(kind));
        Guarded<float> gate = random.floats(n, kind);
        Guarded<float> up = random.floats(n, kValues[round % 3]);
        const auto call = [&](SwiGluQ8Fn *fn, Quantized &out) {
          return fn(gate.data(), up.data(), n, out.q.data(), out.d.data(),
                    out.sums.data());
        };
        CHECK_CASE(checkQuantizing(kernel, reference, n, gate, random, call));
        CHECK_CASE(checkQuantizing(kernel, reference, n, up, random, call));
      }
}

static void checkSwiGluF32(SwiGluF32Fn *kernel, SwiGluF32Fn *reference) {
  Random random(11);
  for (int64_t n : kDepths)
    for (Values kind : kValues) {
      TRACE_CASE("n " << n << ", values " << static_cast<int>(kind));
      Guarded<float> gate = random.floats(n, kind);
      for (float &x : gate)
        x = kind == Values::Uniform ? x * 90.0f : x;
      const Guarded<float> up = random.floats(n, Values::Magnitudes);
      Guarded<float> want(n, kNaN), got(want);
      reference(gate.data(), up.data(), n, want.data());
      kernel(gate.data(), up.data(), n, got.data());
      CHECK_CASE(expectSame(got, want, "y"));
    }
}

static void checkRmsNormF32(RmsNormF32Fn *kernel, RmsNormF32Fn *reference) {
  Random random(12);
  for (int64_t k : kDepths)
    for (Values kind : kValues)
      for (float eps : {1e-6f, 1e-5f}) {
        TRACE_CASE("k " << k << ", values " << static_cast<int>(kind)
                        << ", eps " << eps);
        Guarded<float> x = random.floats(k, kind);
        const Guarded<float> w = random.floats(k);
        Guarded<float> want(k, kNaN), got(want);
        reference(x.data(), w.data(), k, eps, want.data());
        kernel(x.data(), w.data(), k, eps, got.data());
        CHECK_CASE(expectSame(got, want, "y"));
        // A sum that overflows: every value tells.
        x[k - 1] = 0x1p64f;
        kernel(x.data(), w.data(), k, eps, got.data());
        for (float y : got)
          ASSERT_TRUE(std::isnan(y));
      }
}

static void checkCheckFinite(CheckFiniteFn *kernel, CheckFiniteFn *reference) {
  Random random(13);
  for (int64_t n : {1, 2, 7, 8, 15, 16, 17, 33, 320, 321, 333, 4096}) {
    TRACE_CASE("n " << n);
    Guarded<float> x = random.floats(n, Values::Edges);
    x[n - 1] = kMax;
    ASSERT_EQ(kernel(x.data(), n), 0);
    for (float bad : {kNaN, -kNaN, kInf, -kInf})
      for (int64_t at : {int64_t{0}, n / 2, random.below(n), n - 1}) {
        const float old = x[at];
        x[at] = bad;
        ASSERT_EQ(reference(x.data(), n), 1);
        ASSERT_EQ(kernel(x.data(), n), 1) << bad << " at " << at;
        x[at] = old;
      }
  }
}

//===----------------------------------------------------------------------===//
// Embedding and rotation
//===----------------------------------------------------------------------===//

static void checkEmbed(const KernelInfo &row, EmbedFn *kernel,
                       EmbedFn *reference) {
  const WeightFormat format = *weightFormat(row.format);
  Random random(14);
  for (int64_t k : kDepths) {
    const LinearShape shape = {1,     k,     3,    0, 3, 3 * kPanelRows,
                               false, false, false};
    const LinearOperands operands(shape, format, Values::Magnitudes, random);
    for (int32_t id = 0; id < 3 * kPanelRows; ++id) {
      TRACE_CASE("k " << k << ", id " << id);
      Guarded<float> want(k, kNaN), got(want);
      reference(operands.weights.data(), id, k, want.data());
      kernel(operands.weights.data(), id, k, got.data());
      CHECK_CASE(expectSame(got, want, "out"));
    }
  }
}

static void checkRopeTable(RopeTableFn *kernel, RopeTableFn *reference) {
  Random random(15);
  for (int64_t half = 8; half <= 128; half += 4)
    for (int32_t position : {0, 1, 2, 3, 63, 64, 1000, 8191, 40959, 131071,
                             1048575, static_cast<int32_t>(random.below(40960)),
                             static_cast<int32_t>(random.below(40960))}) {
      TRACE_CASE("half " << half << ", position " << position);
      Guarded<float> invFreq(half);
      for (int64_t i = 0; i < half; ++i)
        invFreq[i] =
            ref::ropeInvFreq(position % 2 == 0 ? 1e4 : 1e6, i, 2 * half);
      Guarded<float> wantCos(half, kNaN), gotCos(wantCos), wantSin(wantCos),
          gotSin(wantCos);
      reference(position, invFreq.data(), half, wantCos.data(), wantSin.data());
      kernel(position, invFreq.data(), half, gotCos.data(), gotSin.data());
      CHECK_CASE(expectSame(gotCos, wantCos, "cos"));
      CHECK_CASE(expectSame(gotSin, wantSin, "sin"));
    }
}

/// The rotation, with `call(fn, x, cos, sin, half, y)` for what else it takes.
template <typename Fn, typename Call>
static void checkRotation(Fn *kernel, Fn *reference, Call call) {
  Random random(16);
  for (int64_t half = 8; half <= 128; half += 4)
    for (Values kind : kValues) {
      TRACE_CASE("half " << half << ", values " << static_cast<int>(kind));
      const Guarded<float> x = random.floats(2 * half, kind);
      const Guarded<float> w = random.floats(2 * half);
      const Guarded<float> cos = random.floats(half);
      const Guarded<float> sin = random.floats(half);
      Guarded<float> want(2 * half, kNaN), got(want);
      call(reference, x, w, cos, sin, half, want);
      call(kernel, x, w, cos, sin, half, got);
      CHECK_CASE(expectSame(got, want, "y"));
    }
}

static void checkRope(RopeFn *kernel, RopeFn *reference) {
  checkRotation(kernel, reference,
                [](RopeFn *fn, const auto &x, const auto &, const auto &cos,
                   const auto &sin, int64_t half, auto &y) {
                  fn(x.data(), cos.data(), sin.data(), half, y.data());
                });
}

static void checkNormRope(NormRopeFn *kernel, NormRopeFn *reference) {
  for (float eps : {1e-6f, 1e-5f})
    CHECK_CASE(checkRotation(
        kernel, reference,
        [eps](NormRopeFn *fn, const auto &x, const auto &w, const auto &cos,
              const auto &sin, int64_t half, auto &y) {
          fn(x.data(), w.data(), cos.data(), sin.data(), half, eps, y.data());
        }));
}

//===----------------------------------------------------------------------===//
// Rows of the table
//===----------------------------------------------------------------------===//

/// The files of QWEN_KERNELS.
static const std::vector<ElfImage> &images() {
  static const std::vector<ElfImage> result = [] {
    const char *paths = std::getenv("QWEN_KERNELS");
    if (paths == nullptr)
      throw Error("set QWEN_KERNELS to files made by make-kernels");
    std::vector<ElfImage> files;
    std::istringstream stream(paths);
    for (std::string path; std::getline(stream, path, ':');)
      files.emplace_back(path);
    return files;
  }();
  return result;
}

/// The function of a row in a file, whatever target it is for; or null.
static void *lookup(const ElfImage &image, std::string_view kernel) {
  for (const auto &[name, address] : image.entries())
    if (name.substr(0, name.find('.')) == kernel)
      return address;
  return nullptr;
}

/// The row for the tokens that are left when those of `row` are taken.
static const KernelInfo &gemvOf(const KernelInfo &row) {
  return *selectKernel(row.op, row.format, row.features());
}

template <typename Fn> static Fn *as(void *function) {
  return reinterpret_cast<Fn *>(function);
}

/// Compares the function of `row` in `image` with its reference.
static void checkRow(const KernelInfo &row, const ElfImage &image) {
  void *kernel = lookup(image, row.name);
  void *reference = ref::referenceKernel(row);
  const auto check = [&]<typename Fn>(void (*function)(Fn *, Fn *)) {
    function(as<Fn>(kernel), as<Fn>(reference));
  };
  const auto checkFormat =
      [&]<typename Fn>(void (*function)(const KernelInfo &, Fn *, Fn *)) {
        function(row, as<Fn>(kernel), as<Fn>(reference));
      };
  switch (row.op) {
  case KernelOp::Linear: {
    void *gemv = lookup(image, gemvOf(row).name);
    ASSERT_NE(gemv, nullptr) << gemvOf(row).name << " is not in the file";
    if (!isQuantized(row.format))
      return checkLinear(row, as<LinearF32Fn>(kernel), as<LinearF32Fn>(gemv),
                         as<LinearF32Fn>(reference));
    return checkLinear(row, as<LinearQ8Fn>(kernel), as<LinearQ8Fn>(gemv),
                       as<LinearQ8Fn>(reference));
  }
  case KernelOp::AttentionScores:
    return checkFormat(checkScores);
  case KernelOp::AttentionValues:
    return checkFormat(checkValues);
  case KernelOp::Embed:
    return checkFormat(checkEmbed);
  case KernelOp::RopeTable:
    return check(checkRopeTable);
  case KernelOp::RmsNormF32:
    return check(checkRmsNormF32);
  case KernelOp::RmsNormQ8:
    return check(checkRmsNormQ8);
  case KernelOp::QuantizeQ8:
    return check(checkQuantizeQ8);
  case KernelOp::SwiGluF32:
    return check(checkSwiGluF32);
  case KernelOp::SwiGluQ8:
    return check(checkSwiGluQ8);
  case KernelOp::Rope:
    return check(checkRope);
  case KernelOp::NormRope:
    return check(checkNormRope);
  case KernelOp::AppendK:
  case KernelOp::AppendV:
    return checkFormat(checkAppend);
  case KernelOp::SoftmaxPage:
    return check(checkSoftmaxPage);
  case KernelOp::MergePage:
    return check(checkMergePage);
  case KernelOp::FinishAttention:
    return check(checkFinishAttention);
  case KernelOp::CheckFinite:
    return check(checkCheckFinite);
  }
}

namespace qwen {
/// How GoogleTest prints a row.
static void PrintTo(const KernelInfo &row, std::ostream *stream) {
  *stream << row.name;
}
} // namespace qwen

class KernelTest : public testing::TestWithParam<KernelInfo> {};

TEST_P(KernelTest, IsItsReference) {
  const KernelInfo &row = GetParam();
  const CpuFeatureSet missing = row.features() - hostFeatures();
  if (!missing.empty())
    GTEST_SKIP() << "this machine lacks " << toString(missing);
  int found = 0;
  for (const ElfImage &image : images())
    if (lookup(image, row.name) != nullptr) {
      TRACE_CASE(image.entries().front().first);
      CHECK_CASE(checkRow(row, image));
      ++found;
    }
  EXPECT_GT(found, 0) << "no file of QWEN_KERNELS has this kernel";
}

static std::vector<KernelInfo> rowsOfThisArchitecture() {
  std::vector<KernelInfo> rows;
  for (const KernelInfo &row : kernelTable())
    if (row.arch() == hostArch())
      rows.push_back(row);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, KernelTest,
                         testing::ValuesIn(rowsOfThisArchitecture()),
                         [](const auto &row) {
                           return std::string(row.param.name);
                         });

TEST(KernelFiles, HaveRowsThatThisMachineRuns) {
  int rows = 0;
  for (const ElfImage &image : images())
    for (const KernelInfo &row : rowsOfThisArchitecture())
      if (hostFeatures().containsAll(row.features()))
        rows += lookup(image, row.name) != nullptr;
  EXPECT_GT(rows, 0);
}
