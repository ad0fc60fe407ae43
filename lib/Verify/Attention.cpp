//===- Attention.cpp - Cases of what works on heads -----------------------===//

#include "Cases.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>
#include <iterator>

using namespace qwen;
using namespace qwen::verify;

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

static void checkScoresCase(Cases &cases, KernelFormat format,
                            AttentionScoresFn *kernel,
                            AttentionScoresFn *reference, int64_t groups,
                            int64_t headDim, int64_t n, Random &random) {
  cases.start("groups ", groups, ", head_dim ", headDim, ", n ", n);
  const Guarded<float> q = random.floats(groups * headDim, Values::Magnitudes);
  const Guarded<uint8_t> page =
      makePage(format, headDim * kPageTokens, random,
               [&](int64_t i) { return i % kPageTokens < n; });
  const float scale = 1.0f / std::sqrt(static_cast<float>(headDim));
  Guarded<float> want(groups * kPageTokens), got(want);
  reference(q.data(), page.data(), scale, want.data(), groups, headDim, n,
            page.data());
  kernel(q.data(), page.data(), scale, got.data(), groups, headDim, n,
         page.data());
  for (int64_t i = 0; i < got.length(); ++i)
    if (i % kPageTokens >= n)
      got[i] = want[i];
  cases.expectSame(got, want, "s");
}

static void checkValuesCase(Cases &cases, KernelFormat format,
                            AttentionValuesFn *kernel,
                            AttentionValuesFn *reference, int64_t groups,
                            int64_t headDim, int64_t n, Random &random) {
  cases.start("groups ", groups, ", head_dim ", headDim, ", n ", n);
  Guarded<float> p = random.floats(groups * kPageTokens);
  for (int64_t i = 0; i < p.length(); ++i)
    if (i % kPageTokens >= n)
      p[i] = 0.0f;
  const Guarded<uint8_t> page =
      makePage(format, headDim * kPageTokens, random,
               [&](int64_t i) { return i / headDim < n; });
  Guarded<float> want(groups * headDim, -77.0f), got(want);
  reference(p.data(), page.data(), want.data(), groups, headDim, n,
            page.data());
  kernel(p.data(), page.data(), got.data(), groups, headDim, n, page.data());
  cases.expectSame(got, want, "o");
}

/// Every n with some head sizes and every head size with some n.
template <typename Case>
static void forEachPage(const VerifySizes &sizes, Case run) {
  int64_t turn = 0;
  for (int64_t headDim : sizes.headDims)
    for (int64_t n = 1; n <= kPageTokens; ++n) {
      const bool allCounts = headDim == 16 || headDim == 24 || headDim == 64 ||
                             headDim == 80 || headDim == 128;
      const bool allSizes =
          n == 1 || n == 15 || n == 16 || n == 17 || n == 33 || n == 64;
      if (allCounts || allSizes)
        run(1 + turn++ % 8, headDim, n);
    }
}

void verify::checkScores(Cases &cases, const KernelInfo &row,
                         AttentionScoresFn *kernel,
                         AttentionScoresFn *reference) {
  Random random(2);
  forEachPage(cases.sizes, [&](int64_t groups, int64_t headDim, int64_t n) {
    checkScoresCase(cases, row.format, kernel, reference, groups, headDim, n,
                    random);
  });
}

void verify::checkValues(Cases &cases, const KernelInfo &row,
                         AttentionValuesFn *kernel,
                         AttentionValuesFn *reference) {
  Random random(3);
  forEachPage(cases.sizes, [&](int64_t groups, int64_t headDim, int64_t n) {
    checkValuesCase(cases, row.format, kernel, reference, groups, headDim, n,
                    random);
  });
}

void verify::checkSoftmaxPage(Cases &cases, SoftmaxPageFn *kernel,
                              SoftmaxPageFn *reference) {
  Random random(4);
  for (int64_t n = 1; n <= kPageTokens; ++n)
    for (Values kind : kValues) {
      const int64_t rows = 1 + n % 5;
      cases.start("rows ", rows, ", n ", n, ", values ", valuesName(kind));
      Guarded<float> s = random.floats(rows * kPageTokens, kind);
      for (int64_t i = 0; i < s.length(); ++i)
        if (i % kPageTokens >= n)
          s[i] = i % 2 == 0 ? kNaN : kMax;
      for (float &x : s)
        x = kind == Values::Uniform ? x * 30.0f : x;
      Guarded<float> want(rows * kPageTokens, kNaN), got(want), wantM(rows),
          gotM(rows), wantL(rows), gotL(rows);
      reference(s.data(), rows, n, want.data(), wantM.data(), wantL.data());
      kernel(s.data(), rows, n, got.data(), gotM.data(), gotL.data());
      cases.expectSame(gotM, wantM, "m");
      cases.expectSame(got, want, "p");
      cases.expectSame(gotL, wantL, "l");
    }
}

void verify::checkMergePage(Cases &cases, MergePageFn *kernel,
                            MergePageFn *reference) {
  Random random(5);
  const float maxima[][2] = {{-kInf, 1.5f}, {0.0f, 0.0f},     {3.0f, -2.0f},
                             {-2.0f, 3.0f}, {-200.0f, 50.0f}, {90.0f, -90.0f},
                             {1.0f, 1.5f},  {-0.0f, -0.0f},   {-0.0f, -1.0f}};
  int64_t turn = 0;
  for (int64_t headDim : cases.sizes.headDims)
    for (int64_t rows : {1, 7, 8, 28}) {
      cases.start("rows ", rows, ", head_dim ", headDim);
      const int64_t l = alignTo(rows, kStateQueries), o = 2 * l;
      Guarded<float> old =
          random.floats(o + rows * headDim, Values::Magnitudes);
      Guarded<float> page =
          random.floats(o + rows * headDim, Values::Magnitudes);
      std::fill_n(old.data(), o, kNaN);
      std::fill_n(page.data(), o, kNaN);
      for (int64_t r = 0; r < rows; ++r, ++turn) {
        old[r] = maxima[turn % std::size(maxima)][0];
        page[r] = maxima[turn % std::size(maxima)][1];
        old[l + r] = std::fabs(random.uniform()) * 99.0f;
        page[l + r] = 1.0f + std::fabs(random.uniform());
      }
      Guarded<float> want(o + rows * headDim, kNaN), got(want);
      reference(old.data(), page.data(), rows, headDim, want.data());
      kernel(old.data(), page.data(), rows, headDim, got.data());
      for (int64_t r = rows; r < l; ++r)
        got[r] = got[l + r] = kNaN;
      cases.expectSame(got, want, "m, l and o");
    }
}

void verify::checkFinishAttention(Cases &cases, FinishAttentionFn *kernel,
                                  FinishAttentionFn *reference) {
  Random random(6);
  for (int64_t headDim : cases.sizes.headDims)
    for (float l : {1.0f, 3.0f, 63.7f, 0x1.fffffep+14f}) {
      cases.start("head_dim ", headDim, ", l ", l);
      const Guarded<float> o = random.floats(headDim, Values::Magnitudes);
      Guarded<float> want(headDim, kNaN), got(want);
      reference(o.data(), l, headDim, want.data());
      kernel(o.data(), l, headDim, got.data());
      cases.expectSame(got, want, "y");
    }
}

static void checkAppendCase(Cases &cases, const KernelInfo &row,
                            AppendKFn *kernel, AppendKFn *reference,
                            const Guarded<float> &x, int64_t slot) {
  const int64_t headDim = x.length();
  const int64_t bytes = row.format == KernelFormat::F32 ? 4 : 2;
  const int64_t step = row.op == KernelOp::AppendK ? 1 : headDim;
  Guarded<uint8_t> want(headDim * kPageTokens * bytes, 0xee), got(want);
  const int32_t flag =
      reference(x.data(), headDim, want.data() + slot * step * bytes);
  cases.expectFlag(kernel(x.data(), headDim, got.data() + slot * step * bytes),
                   flag);
  if (flag == 0)
    cases.expectSame(got, want, "page");
}

void verify::checkAppend(Cases &cases, const KernelInfo &row, AppendKFn *kernel,
                         AppendKFn *reference) {
  Random random(7);
  int64_t turn = 0;
  for (int64_t headDim : cases.sizes.headDims)
    for (Values kind : kValues) {
      const int64_t slot = turn++ % kPageTokens;
      cases.start("head_dim ", headDim, ", slot ", slot, ", values ",
                  valuesName(kind));
      Guarded<float> x = random.floats(headDim, kind);
      checkAppendCase(cases, row, kernel, reference, x, slot);
      for (float bad : {kNaN, -kInf, 65520.0f, -65519.0f}) {
        const int64_t at = random.below(headDim);
        cases.start("head_dim ", headDim, ", slot ", slot, ", ", bad, " at ",
                    at);
        x[at] = bad;
        checkAppendCase(cases, row, kernel, reference, x, slot);
        x.fill(1.0f);
      }
    }
}

void verify::checkRopeTable(Cases &cases, RopeTableFn *kernel,
                            RopeTableFn *reference) {
  Random random(15);
  for (int64_t headDim : cases.sizes.headDims)
    for (int32_t position : {0, 1, 2, 3, 63, 64, 1000, 8191, 40959, 131071,
                             1048575, static_cast<int32_t>(random.below(40960)),
                             static_cast<int32_t>(random.below(40960))}) {
      const int64_t half = headDim / 2;
      cases.start("half ", half, ", position ", position);
      Guarded<float> invFreq(half);
      for (int64_t i = 0; i < half; ++i)
        invFreq[i] =
            numerics::ropeInvFreq(position % 2 == 0 ? 1e4 : 1e6, i, headDim);
      Guarded<float> wantCos(half, kNaN), gotCos(wantCos), wantSin(wantCos),
          gotSin(wantCos);
      reference(position, invFreq.data(), half, wantCos.data(), wantSin.data());
      kernel(position, invFreq.data(), half, gotCos.data(), gotSin.data());
      cases.expectSame(gotCos, wantCos, "cos");
      cases.expectSame(gotSin, wantSin, "sin");
    }
}

/// The rotation, with `call(fn, x, cos, sin, half, y)` for what else it takes.
template <typename Fn, typename Call>
static void checkRotation(Cases &cases, Fn *kernel, Fn *reference, Call call) {
  Random random(16);
  for (int64_t headDim : cases.sizes.headDims)
    for (Values kind : kValues) {
      const int64_t half = headDim / 2;
      cases.start("half ", half, ", values ", valuesName(kind));
      const Guarded<float> x = random.floats(headDim, kind);
      const Guarded<float> w = random.floats(headDim);
      const Guarded<float> cos = random.floats(half);
      const Guarded<float> sin = random.floats(half);
      Guarded<float> want(headDim, kNaN), got(want);
      call(reference, x, w, cos, sin, half, want);
      call(kernel, x, w, cos, sin, half, got);
      cases.expectSame(got, want, "y");
    }
}

void verify::checkRope(Cases &cases, RopeFn *kernel, RopeFn *reference) {
  checkRotation(cases, kernel, reference,
                [](RopeFn *fn, const auto &x, const auto &, const auto &cos,
                   const auto &sin, int64_t half, auto &y) {
                  fn(x.data(), cos.data(), sin.data(), half, y.data());
                });
}

void verify::checkNormRope(Cases &cases, NormRopeFn *kernel,
                           NormRopeFn *reference) {
  for (float eps : {1e-6f, 1e-5f})
    checkRotation(
        cases, kernel, reference,
        [eps](NormRopeFn *fn, const auto &x, const auto &w, const auto &cos,
              const auto &sin, int64_t half, auto &y) {
          fn(x.data(), w.data(), cos.data(), sin.data(), half, eps, y.data());
        });
}
