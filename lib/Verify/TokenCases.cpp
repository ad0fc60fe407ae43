//===- TokenCases.cpp - Cases of kernels that work on a token -------------===//

#include "Cases.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Numerics/Rotation.h"

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

/// Runs call(function, q, d, sums) for both functions, with the input as it is
/// and with each kind of invalid value in it. `name` is of the cases.
template <KernelOp Op, typename Call>
static void checkQuantizing(Cases &cases, const Compared<Op> &of,
                            const std::string &name, int64_t k,
                            Guarded<float> &input, Random &random, Call call) {
  const auto run = [&](KernelFn<Op> *function, Quantized &out) {
    return call(function, out.q.data(), out.d.data(), out.sums.data());
  };
  const auto compare = [&] {
    Quantized want(k), got(k);
    const int32_t flag = run(of.reference, want);
    cases.expectFlag(run(of.kernel, got), flag);
    if (flag != 0)
      return;
    cases.expectSame(got.q, want.q, "q");
    cases.expectSame(got.d, want.d, "d");
    cases.expectSame(got.sums, want.sums, "sums");
  };
  cases.start(name);
  compare();
  for (float invalid : {kNaN, -kNaN, kInf, -kInf, kMax}) {
    const int64_t at = random.below(input.length());
    cases.start(name, ", ", invalid, " at ", at);
    const float old = input[at];
    input[at] = invalid;
    compare();
    input[at] = old;
  }
}

/// The values that activations are drawn from, as the name of a case.
static std::string describe(char size, int64_t n, Values kind) {
  return std::string(1, size) + " " + std::to_string(n) + ", values " +
         valuesName(kind);
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::QuantizeQ8> &of) {
  Random random(8);
  for (int64_t k : cases.sizes.depths)
    for (Values kind : kValues)
      for (float scale : {1.0f, 0x1p-100f, 0x1p-99f, 0x1p60f}) {
        const std::string name = describe('k', k, kind) + " times 2^" +
                                 std::to_string(std::ilogb(scale));
        Guarded<float> x = random.floats(k, kind);
        for (float &value : x)
          value *= scale;
        checkQuantizing(cases, of, name, k, x, random,
                        [&](QuantizeQ8Fn *fn, auto... out) {
                          return fn(x.data(), k, out...);
                        });
      }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::RmsNormQ8> &of) {
  Random random(9);
  for (int64_t k : cases.sizes.depths)
    for (Values kind : kValues)
      for (float eps : {1e-6f, 1e-5f}) {
        const std::string name =
            describe('k', k, kind) + ", eps " + std::to_string(eps);
        Guarded<float> x = random.floats(k, kind);
        const Guarded<float> w = random.floats(k);
        checkQuantizing(cases, of, name, k, x, random,
                        [&](RmsNormQ8Fn *fn, auto... out) {
                          return fn(x.data(), w.data(), k, eps, out...);
                        });
      }
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::SwiGluQ8> &of) {
  Random random(10);
  for (int64_t n = kGroup; n <= kStackValues;
       n += n < kActivationBlock ? kGroup : kActivationBlock + kGroup)
    for (Values kind : kValues)
      for (int round = 0; round < 8; ++round) {
        const std::string name = describe('n', n, kind);
        Guarded<float> gate = random.floats(n, kind);
        Guarded<float> up = random.floats(n, kValues[round % 3]);
        const auto call = [&](SwiGluQ8Fn *fn, auto... out) {
          return fn(gate.data(), up.data(), n, out...);
        };
        checkQuantizing(cases, of, name + ", gate", n, gate, random, call);
        checkQuantizing(cases, of, name + ", up", n, up, random, call);
      }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::SwiGluF32> &of) {
  Random random(11);
  for (int64_t n : cases.sizes.depths)
    for (Values kind : kValues) {
      cases.start(describe('n', n, kind));
      Guarded<float> gate = random.floats(n, kind);
      for (float &x : gate)
        x = kind == Values::Uniform ? x * 90.0f : x;
      const Guarded<float> up = random.floats(n, Values::Magnitudes);
      cases.compare(
          of, Guarded<float>(n, kNaN), "y",
          [&](SwiGluF32Fn *fn, float *y) { fn(gate.data(), up.data(), n, y); });
    }
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::Hadamard> &of) {
  Random random(17);
  for (int64_t n = kGroup; n <= 3 * kActivationBlock; n += kGroup)
    for (Values kind : kValues) {
      cases.start(describe('n', n, kind));
      const Guarded<float> x = random.floats(n, kind);
      cases.compare(of, Guarded<float>(n, kNaN), "y",
                    [&](HadamardFn *fn, float *y) { fn(x.data(), n, y); });
    }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::HadamardQ8> &of) {
  Random random(18);
  for (int64_t n = kGroup; n <= kStackValues;
       n += n < 2 * kActivationBlock ? kGroup : kActivationBlock)
    for (Values kind : kValues)
      for (float scale : {1.0f, 0x1p-100f, 0x1p-104f}) {
        const std::string name = describe('n', n, kind) + " times 2^" +
                                 std::to_string(std::ilogb(scale));
        Guarded<float> x = random.floats(n, kind);
        for (float &value : x)
          value *= scale;
        checkQuantizing(cases, of, name, n, x, random,
                        [&](HadamardQ8Fn *fn, auto... out) {
                          return fn(x.data(), n, out...);
                        });
      }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::RmsNormF32> &of) {
  Random random(12);
  for (int64_t k : cases.sizes.depths)
    for (Values kind : kValues)
      for (float eps : {1e-6f, 1e-5f}) {
        cases.start(describe('k', k, kind), ", eps ", eps);
        Guarded<float> x = random.floats(k, kind);
        const Guarded<float> w = random.floats(k);
        cases.compare(of, Guarded<float>(k, kNaN), "y",
                      [&](RmsNormF32Fn *fn, float *y) {
                        fn(x.data(), w.data(), k, eps, y);
                      });
        // A sum that overflows: every value tells.
        cases.start(describe('k', k, kind), ", eps ", eps, ", too large");
        x[k - 1] = 0x1p64f;
        Guarded<float> got(k, 0.0f);
        of.kernel(x.data(), w.data(), k, eps, got.data());
        cases.expectSame(got, Guarded<float>(k, kNaN), "y");
      }
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::Turn> &of) {
  Random random(14);
  for (int64_t k : cases.sizes.depths)
    for (Values kind : kValues) {
      cases.start(describe('k', k, kind));
      const Guarded<float> x = random.floats(k, kind);
      const Guarded<float> factor = random.floats(numerics::oddPart(k));
      cases.compare(
          of, Guarded<float>(k, kNaN), "y",
          [&](TurnFn *fn, float *y) { fn(x.data(), factor.data(), k, y); });
    }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::CheckFinite> &of) {
  Random random(13);
  for (int64_t n : {1, 2, 7, 8, 15, 16, 17, 33, 320, 321, 333, 4096}) {
    Guarded<float> x = random.floats(n, Values::Edges);
    x[n - 1] = kMax;
    const auto compare = [&] {
      cases.expectFlag(of.kernel(x.data(), n), of.reference(x.data(), n));
    };
    cases.start("n ", n);
    compare();
    for (float invalid : {kNaN, -kNaN, kInf, -kInf})
      for (int64_t at : {int64_t{0}, n / 2, random.below(n), n - 1}) {
        cases.start("n ", n, ", ", invalid, " at ", at);
        const float old = x[at];
        x[at] = invalid;
        compare();
        x[at] = old;
      }
  }
}

/// Compares a kernel of an element-wise map.
template <KernelOp Op>
static void checkMap(const Cases &cases, const Compared<Op> &of,
                     const Guarded<float> &x) {
  cases.compare(
      of, Guarded<float>(x.length(), kNaN), "y",
      [&](KernelFn<Op> *fn, float *y) { fn(x.data(), x.length(), y); });
}

#define QWEN_ELEMENT_MAP(Map, Name)                                            \
  void verify::checkKernel(Cases &cases, const Compared<KernelOp::Map> &of) {  \
    Random random(26);                                                         \
    for (int64_t n : {1, 3, 15, 16, 17, 32, 47, 96, 128, 1024})                \
      for (Values kind : kValues) {                                            \
        cases.start("n ", n, ", values ", valuesName(kind));                   \
        checkMap(cases, of, random.floats(n, kind));                           \
      }                                                                        \
  }
#include "qwen/ABI/ElementMaps.def"
