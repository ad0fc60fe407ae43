//===- Rows.cpp - Cases of what works on rows -----------------------------===//

#include "Cases.h"

#include "qwen/ABI/Blocks.h"

using namespace qwen;
using namespace qwen::verify;

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
/// of bad value in it. `name` is of the cases.
template <typename Fn, typename Call>
static void checkQuantizing(Cases &cases, const std::string &name, Fn *kernel,
                            Fn *reference, int64_t k, Guarded<float> &input,
                            Random &random, Call call) {
  const auto compare = [&] {
    Quantized want(k), got(k);
    const int32_t flag = call(reference, want);
    cases.expectFlag(call(kernel, got), flag);
    if (flag != 0)
      return;
    cases.expectSame(got.q, want.q, "q");
    cases.expectSame(got.d, want.d, "d");
    cases.expectSame(got.sums, want.sums, "sums");
  };
  cases.start(name);
  compare();
  for (float bad : {kNaN, -kNaN, kInf, -kInf, kMax}) {
    const int64_t at = random.below(input.length());
    cases.start(name, ", ", bad, " at ", at);
    const float old = input[at];
    input[at] = bad;
    compare();
    input[at] = old;
  }
}

/// The values that a row is drawn from, as the name of a case.
static std::string describe(char size, int64_t n, Values kind) {
  return std::string(1, size) + " " + std::to_string(n) + ", values " +
         valuesName(kind);
}

void verify::checkQuantizeQ8(Cases &cases, QuantizeQ8Fn *kernel,
                             QuantizeQ8Fn *reference) {
  Random random(8);
  for (int64_t k : cases.sizes.depths)
    for (Values kind : kValues)
      for (float scale : {1.0f, 0x1p-100f, 0x1p-99f, 0x1p60f}) {
        const std::string name = describe('k', k, kind) + " times 2^" +
                                 std::to_string(std::ilogb(scale));
        Guarded<float> x = random.floats(k, kind);
        for (float &value : x)
          value *= scale;
        checkQuantizing(cases, name, kernel, reference, k, x, random,
                        [&](QuantizeQ8Fn *fn, Quantized &out) {
                          return fn(x.data(), k, out.q.data(), out.d.data(),
                                    out.sums.data());
                        });
      }
}

void verify::checkRmsNormQ8(Cases &cases, RmsNormQ8Fn *kernel,
                            RmsNormQ8Fn *reference) {
  Random random(9);
  for (int64_t k : cases.sizes.depths)
    for (Values kind : kValues)
      for (float eps : {1e-6f, 1e-5f}) {
        const std::string name =
            describe('k', k, kind) + ", eps " + std::to_string(eps);
        Guarded<float> x = random.floats(k, kind);
        const Guarded<float> w = random.floats(k);
        checkQuantizing(cases, name, kernel, reference, k, x, random,
                        [&](RmsNormQ8Fn *fn, Quantized &out) {
                          return fn(x.data(), w.data(), k, eps, out.q.data(),
                                    out.d.data(), out.sums.data());
                        });
      }
}

void verify::checkSwiGluQ8(Cases &cases, SwiGluQ8Fn *kernel,
                           SwiGluQ8Fn *reference) {
  Random random(10);
  for (int64_t n = kGroup; n <= kActivationBlock; n += kGroup)
    for (Values kind : kValues)
      for (int round = 0; round < 8; ++round) {
        const std::string name = describe('n', n, kind);
        Guarded<float> gate = random.floats(n, kind);
        Guarded<float> up = random.floats(n, kValues[round % 3]);
        const auto call = [&](SwiGluQ8Fn *fn, Quantized &out) {
          return fn(gate.data(), up.data(), n, out.q.data(), out.d.data(),
                    out.sums.data());
        };
        checkQuantizing(cases, name + ", gate", kernel, reference, n, gate,
                        random, call);
        checkQuantizing(cases, name + ", up", kernel, reference, n, up, random,
                        call);
      }
}

void verify::checkSwiGluF32(Cases &cases, SwiGluF32Fn *kernel,
                            SwiGluF32Fn *reference) {
  Random random(11);
  for (int64_t n : cases.sizes.depths)
    for (Values kind : kValues) {
      cases.start(describe('n', n, kind));
      Guarded<float> gate = random.floats(n, kind);
      for (float &x : gate)
        x = kind == Values::Uniform ? x * 90.0f : x;
      const Guarded<float> up = random.floats(n, Values::Magnitudes);
      Guarded<float> want(n, kNaN), got(want);
      reference(gate.data(), up.data(), n, want.data());
      kernel(gate.data(), up.data(), n, got.data());
      cases.expectSame(got, want, "y");
    }
}

void verify::checkRmsNormF32(Cases &cases, RmsNormF32Fn *kernel,
                             RmsNormF32Fn *reference) {
  Random random(12);
  for (int64_t k : cases.sizes.depths)
    for (Values kind : kValues)
      for (float eps : {1e-6f, 1e-5f}) {
        cases.start(describe('k', k, kind), ", eps ", eps);
        Guarded<float> x = random.floats(k, kind);
        const Guarded<float> w = random.floats(k);
        Guarded<float> want(k, kNaN), got(want);
        reference(x.data(), w.data(), k, eps, want.data());
        kernel(x.data(), w.data(), k, eps, got.data());
        cases.expectSame(got, want, "y");
        // A sum that overflows: every value tells.
        cases.start(describe('k', k, kind), ", eps ", eps, ", too large");
        x[k - 1] = 0x1p64f;
        kernel(x.data(), w.data(), k, eps, got.data());
        cases.expectSame(got, Guarded<float>(k, kNaN), "y");
      }
}

void verify::checkCheckFinite(Cases &cases, CheckFiniteFn *kernel,
                              CheckFiniteFn *reference) {
  Random random(13);
  for (int64_t n : {1, 2, 7, 8, 15, 16, 17, 33, 320, 321, 333, 4096}) {
    cases.start("n ", n);
    Guarded<float> x = random.floats(n, Values::Edges);
    x[n - 1] = kMax;
    cases.expectFlag(kernel(x.data(), n), reference(x.data(), n));
    for (float bad : {kNaN, -kNaN, kInf, -kInf})
      for (int64_t at : {int64_t{0}, n / 2, random.below(n), n - 1}) {
        cases.start("n ", n, ", ", bad, " at ", at);
        const float old = x[at];
        x[at] = bad;
        cases.expectFlag(kernel(x.data(), n), reference(x.data(), n));
        x[at] = old;
      }
  }
}
