//===- AttentionCases.cpp - Cases of kernels that work on heads -----------===//

#include "Cases.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>
#include <iterator>

using namespace qwen;
using namespace qwen::verify;

/// Bytes of the keys or the values of a head in a page.
static int64_t headBytes(KernelFormat format, int64_t headDim) {
  return layoutOf(*kvFormat(format)).headBytes(headDim);
}

/// A page to whose first n slots `Append`, AppendK or AppendV, has written. The
/// bits of other slots are ones: floats are no numbers.
template <KernelOp Append>
static Guarded<uint8_t> makePage(KernelFormat format, int64_t headDim,
                                 int64_t n, Random &random) {
  Guarded<uint8_t> page(headBytes(format, headDim), 0xff);
  for (int64_t slot = 0; slot < n; ++slot) {
    const Guarded<float> x = random.floats(headDim, Values::Magnitudes);
    numerics::reference<Append>(format)(x.data(), headDim, slot, page.data());
  }
  return page;
}

/// Runs a case for every n with some head sizes and every head size with some
/// n. Some counts of queries fill one tile or less, others fill several tiles.
template <typename Case> static void forEachPage(Cases &cases, Case run) {
  constexpr int64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 28, 31};
  int64_t turn = 0;
  for (int64_t headDim : cases.sizes.headDims)
    for (int64_t n = 1; n <= kPageTokens; ++n) {
      const bool allCounts = headDim == 16 || headDim == 24 || headDim == 64 ||
                             headDim == 80 || headDim == 128;
      const bool allSizes =
          n == 1 || n == 15 || n == 16 || n == 17 || n == 33 || n == 64;
      if (!allCounts && !allSizes)
        continue;
      const int64_t queries = counts[turn++ % std::ssize(counts)];
      cases.start("queries ", queries, ", head_dim ", headDim, ", n ", n);
      run(queries, headDim, n);
    }
}

/// The codes of queries [..][headDim] for keys in integers; else none.
static Guarded<uint8_t> encode(KernelFormat format, const Guarded<float> &x,
                               int64_t headDim) {
  if (layoutOf(*kvFormat(format)).isFloat())
    return Guarded<uint8_t>(0);
  const int64_t queries = x.length() / headDim, bytes = KvQuery::bytes(headDim);
  Guarded<uint8_t> codes(queries * bytes);
  for (int64_t i = 0; i < queries; ++i)
    numerics::reference<KernelOp::EncodeQuery>(format)(
        x.data() + i * headDim, headDim, codes.data() + i * bytes);
  return codes;
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::EncodeQuery> &of) {
  Random random(17);
  for (int64_t headDim : cases.sizes.headDims)
    for (Values kind : kValues)
      for (float other : {0.0f, 1.0f, kNaN, -kInf}) {
        cases.start("head_dim ", headDim, ", values ", valuesName(kind), ", ",
                    other);
        Guarded<float> x = random.floats(headDim, kind);
        x[random.below(headDim)] = other;
        Guarded<uint8_t> want(KvQuery::bytes(headDim), 0xee), got(want);
        const int32_t flag = of.reference(x.data(), headDim, want.data());
        cases.expectFlag(of.kernel(x.data(), headDim, got.data()), flag);
        if (flag == 0)
          cases.expectSame(got, want, "query");
      }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::AttentionScores> &of) {
  Random random(2);
  forEachPage(cases, [&](int64_t queries, int64_t headDim, int64_t n) {
    const Guarded<float> q =
        random.floats(queries * headDim, Values::Magnitudes);
    const Guarded<uint8_t> codes = encode(of.info.format, q, headDim);
    const void *query =
        codes.length() > 0 ? static_cast<const void *>(codes.data()) : q.data();
    const Guarded<uint8_t> page =
        makePage<KernelOp::AppendK>(of.info.format, headDim, n, random);
    const float scale = 1.0f / std::sqrt(static_cast<float>(headDim));
    cases.compare(of, Guarded<float>(queries * kPageTokens), "s",
                  [&](AttentionScoresFn *fn, float *s) {
                    fn(query, page.data(), scale, s, queries, headDim, n,
                       page.data());
                    for (int64_t i = 0; i < queries * kPageTokens; ++i)
                      if (i % kPageTokens >= n)
                        s[i] = 0.0f;
                  });
  });
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::AttentionValues> &of) {
  Random random(3);
  forEachPage(cases, [&](int64_t queries, int64_t headDim, int64_t n) {
    Guarded<float> p = random.floats(queries * kPageTokens);
    for (int64_t i = 0; i < p.length(); ++i)
      p[i] = i % kPageTokens < n ? std::fabs(p[i]) : 0.0f;
    const Guarded<uint8_t> page =
        makePage<KernelOp::AppendV>(of.info.format, headDim, n, random);
    cases.compare(of, Guarded<float>(queries * headDim, -77.0f), "o",
                  [&](AttentionValuesFn *fn, float *o) {
                    fn(p.data(), page.data(), o, queries, headDim, n,
                       page.data());
                  });
  });
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::SoftmaxPage> &of) {
  Random random(4);
  for (int64_t n = 1; n <= kPageTokens; ++n)
    for (Values kind : kValues) {
      const int64_t queries = 1 + n % 5;
      cases.start("queries ", queries, ", n ", n, ", values ",
                  valuesName(kind));
      Guarded<float> s = random.floats(queries * kPageTokens, kind);
      for (int64_t i = 0; i < s.length(); ++i)
        if (i % kPageTokens >= n)
          s[i] = i % 2 == 0 ? kNaN : kMax;
      for (float &x : s)
        x = kind == Values::Uniform ? x * 30.0f : x;
      Guarded<float> want(queries * kPageTokens, kNaN), got(want),
          wantM(queries), gotM(queries), wantL(queries), gotL(queries);
      of.reference(s.data(), queries, n, want.data(), wantM.data(),
                   wantL.data());
      of.kernel(s.data(), queries, n, got.data(), gotM.data(), gotL.data());
      cases.expectSame(gotM, wantM, "m");
      cases.expectSame(got, want, "p");
      cases.expectSame(gotL, wantL, "l");
      of.kernel(s.data(), queries, n, s.data(), gotM.data(), gotL.data());
      cases.expectSame(s, want, "p in the place of s");
    }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::MergePage> &of) {
  Random random(5);
  const float maxima[][2] = {{-kInf, 1.5f}, {0.0f, 0.0f},     {3.0f, -2.0f},
                             {-2.0f, 3.0f}, {-200.0f, 50.0f}, {90.0f, -90.0f},
                             {1.0f, 1.5f},  {-0.0f, -0.0f},   {-0.0f, -1.0f}};
  int64_t turn = 0;
  for (int64_t headDim : cases.sizes.headDims)
    for (int64_t queries : {1, 7, 8, 28}) {
      cases.start("queries ", queries, ", head_dim ", headDim);
      const int64_t l = alignTo(queries, kStateQueries), o = 2 * l;
      Guarded<float> old =
          random.floats(o + queries * headDim, Values::Magnitudes);
      Guarded<float> page =
          random.floats(o + queries * headDim, Values::Magnitudes);
      std::fill_n(old.data(), o, kNaN);
      std::fill_n(page.data(), o, kNaN);
      for (int64_t r = 0; r < queries; ++r, ++turn) {
        old[r] = maxima[turn % std::size(maxima)][0];
        page[r] = maxima[turn % std::size(maxima)][1];
        old[l + r] = std::fabs(random.uniform()) * 99.0f;
        page[l + r] = 1.0f + std::fabs(random.uniform());
      }
      const auto merge = [&](MergePageFn *fn, const float *from, float *to) {
        fn(from, page.data(), queries, headDim, to);
        std::fill(to + queries, to + l, kNaN);
        std::fill(to + l + queries, to + o, kNaN);
      };
      cases.compare(of, Guarded<float>(o + queries * headDim, kNaN),
                    "m, l and o", [&](MergePageFn *fn, float *merged) {
                      merge(fn, old.data(), merged);
                    });
      cases.compare(
          of, old, "m, l and o in the place of the old state",
          [&](MergePageFn *fn, float *state) { merge(fn, state, state); });
    }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::FinishAttention> &of) {
  Random random(6);
  for (int64_t headDim : cases.sizes.headDims)
    for (float l : {1.0f, 3.0f, 63.7f, 0x1.fffffep+14f}) {
      cases.start("head_dim ", headDim, ", l ", l);
      const Guarded<float> o = random.floats(headDim, Values::Magnitudes);
      cases.compare(of, Guarded<float>(headDim, kNaN), "y",
                    [&](FinishAttentionFn *fn, float *y) {
                      fn(o.data(), l, headDim, y);
                    });
    }
}

/// Appends values to slots of a page.
template <KernelOp Op>
static void checkAppend(Cases &cases, const Compared<Op> &of) {
  Random random(7);
  int64_t turn = 0;
  for (int64_t headDim : cases.sizes.headDims)
    for (Values kind : kValues) {
      const int64_t slot = turn++ % kPageTokens;
      Guarded<float> x = random.floats(headDim, kind);
      const auto compare = [&] {
        Guarded<uint8_t> want(headBytes(of.info.format, headDim), 0xee),
            got(want);
        const int32_t flag = of.reference(x.data(), headDim, slot, want.data());
        cases.expectFlag(of.kernel(x.data(), headDim, slot, got.data()), flag);
        if (flag == 0)
          cases.expectSame(got, want, "page");
      };
      cases.start("head_dim ", headDim, ", slot ", slot, ", values ",
                  valuesName(kind));
      compare();
      for (float invalid : {kNaN, -kInf, 65520.0f, -65519.0f}) {
        const int64_t i = random.below(headDim);
        cases.start("head_dim ", headDim, ", slot ", slot, ", ", invalid,
                    " at ", i);
        x[i] = invalid;
        compare();
        x.fill(1.0f);
      }
    }
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::AppendK> &of) {
  checkAppend(cases, of);
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::AppendV> &of) {
  checkAppend(cases, of);
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::RopeTable> &of) {
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
      of.reference(position, invFreq.data(), half, wantCos.data(),
                   wantSin.data());
      of.kernel(position, invFreq.data(), half, gotCos.data(), gotSin.data());
      cases.expectSame(gotCos, wantCos, "cos");
      cases.expectSame(gotSin, wantSin, "sin");
    }
}

/// Rotates heads: call(fn, x, w, cos, sin, half, y).
template <KernelOp Op, typename Call>
static void checkRotation(Cases &cases, const Compared<Op> &of, Call call) {
  Random random(16);
  for (int64_t headDim : cases.sizes.headDims)
    for (Values kind : kValues) {
      const int64_t half = headDim / 2;
      cases.start("half ", half, ", values ", valuesName(kind));
      const Guarded<float> x = random.floats(headDim, kind);
      const Guarded<float> w = random.floats(headDim);
      const Guarded<float> cos = random.floats(half);
      const Guarded<float> sin = random.floats(half);
      cases.compare(of, Guarded<float>(headDim, kNaN), "y",
                    [&](KernelFn<Op> *fn, float *y) {
                      call(fn, x.data(), w.data(), cos.data(), sin.data(), half,
                           y);
                    });
    }
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::Rope> &of) {
  checkRotation(cases, of, [](RopeFn *fn, auto *x, auto *, auto... rest) {
    fn(x, rest...);
  });
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::NormRope> &of) {
  for (float eps : {1e-6f, 1e-5f})
    checkRotation(cases, of,
                  [eps](NormRopeFn *fn, auto *x, auto *w, auto *cos, auto *sin,
                        int64_t half,
                        float *y) { fn(x, w, cos, sin, half, eps, y); });
}
