//===- LinearAttention.cpp - Cases of the kernels of linear attention -----===//

#include "Cases.h"

using namespace qwen;
using namespace qwen::verify;

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::SigmoidGate> &of) {
  Random random(20);
  for (int64_t n : cases.sizes.depths)
    for (Values kind : kValues) {
      cases.start("n ", n, ", values ", valuesName(kind));
      Guarded<float> gate = random.floats(n, kind);
      for (float &x : gate)
        x = kind == Values::Uniform ? x * 90.0f : x;
      const Guarded<float> x = random.floats(n, Values::Magnitudes);
      cases.compare(of, Guarded<float>(n, kNaN), "y",
                    [&](SigmoidGateFn *fn, float *y) {
                      fn(x.data(), gate.data(), n, y);
                    });
    }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::DeltaGates> &of) {
  Random random(21);
  for (int64_t n : {1, 3, 15, 16, 17, 32, 47, 64})
    for (Values kind : kValues) {
      cases.start("heads ", n, ", values ", valuesName(kind));
      const Guarded<float> a = random.floats(n, kind),
                           b = random.floats(n, kind), bias = random.floats(n);
      Guarded<float> rate = random.floats(n, Values::Magnitudes);
      for (float &x : rate)
        x = std::fabs(x);
      const auto run = [&](DeltaGatesFn *fn, Guarded<float> &decay,
                           Guarded<float> &beta) {
        fn(a.data(), b.data(), rate.data(), bias.data(), n, decay.data(),
           beta.data());
      };
      Guarded<float> decay(n, kNaN), beta(decay), decayNeeded(decay),
          betaNeeded(decay);
      run(of.kernel, decay, beta);
      run(of.reference, decayNeeded, betaNeeded);
      cases.expectSame(decay, decayNeeded, "decay");
      cases.expectSame(beta, betaNeeded, "beta");
    }
}

/// Convolves the first n of `channels` channels.
static void checkConvolution(Cases &cases,
                             const Compared<KernelOp::ShortConvolution> &of,
                             Random &random, int64_t n, int64_t channels,
                             int64_t tokens) {
  const int64_t stride = channels + 4, resultStride = channels + 8;
  const Guarded<float> x = random.floats((tokens - 1) * stride + n);
  const Guarded<float> weights = random.floats(n * kConvolutionTaps);
  Guarded<float> state = random.floats((kConvolutionTaps - 2) * channels + n);
  Guarded<float> y((tokens - 1) * resultStride + n, kNaN);
  Guarded<float> stateNeeded(state), needed(y);
  const auto run = [&](ShortConvolutionFn *fn, float *before, float *to) {
    fn(x.data(), stride, weights.data(), tokens, n, channels, before, to,
       resultStride);
  };
  cases.start("n ", n, " of ", channels, ", tokens ", tokens);
  run(of.kernel, state.data(), y.data());
  run(of.reference, stateNeeded.data(), needed.data());
  cases.expectSame(y, needed, "y");
  cases.expectSame(state, stateNeeded, "state");
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::ShortConvolution> &of) {
  Random random(22);
  for (int64_t n : {16, 32, 48, 64, 80, 192})
    for (int64_t other : {0, 64})
      for (int64_t tokens : cases.sizes.tokens)
        checkConvolution(cases, of, random, n, n + other, tokens);
}

namespace {
/// What a kernel of the gated delta rule writes.
struct Stepped {
  Guarded<float> state, y, scratch;
  int32_t flag = 0;
};
} // namespace

/// Runs some tokens, one after another. The last one has `last` in its value of
/// some column.
static void checkRule(Cases &cases, const Compared<KernelOp::DeltaRule> &of,
                      Random &random, int64_t keyDim, Values kind, float last) {
  const auto scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(keyDim)));
  const Guarded<float> state = random.floats(kDeltaColumns * keyDim);
  const Guarded<float> none(kDeltaColumns, kNaN), scratch(2 * keyDim, kNaN);
  Stepped found = {state, none, scratch}, needed = {state, none, scratch};
  constexpr int64_t kTokens = 3;
  for (int64_t token = 0; token < kTokens; ++token) {
    const Guarded<float> q = random.floats(keyDim, kind),
                         k = random.floats(keyDim, kind);
    Guarded<float> v = random.floats(kDeltaColumns, kind);
    const float decay = 1 - std::fabs(random.uniform()) / 4;
    const float beta = std::fabs(random.uniform());
    if (token == kTokens - 1 && last != 0)
      v[random.below(kDeltaColumns)] = last;
    cases.start("key_dim ", keyDim, ", values ", valuesName(kind), ", token ",
                token, token == kTokens - 1 && last != 0 ? ", too large" : "");
    const auto step = [&](DeltaRuleFn *fn, Stepped &to) {
      to.flag = fn(q.data(), k.data(), v.data(), decay, beta, keyDim, scale,
                   to.state.data(), to.y.data(), to.scratch.data());
    };
    step(of.kernel, found);
    step(of.reference, needed);
    cases.expectFlag(found.flag, needed.flag);
    if (needed.flag != 0)
      return;
    cases.expectSame(found.y, needed.y, "y");
    cases.expectSame(found.state, needed.state, "state");
  }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::DeltaRule> &of) {
  Random random(23);
  for (int64_t keyDim : {32, 64, 96, 128, 256})
    for (Values kind : kValues)
      for (float last : {0.0f, kMax, kInf, kNaN})
        checkRule(cases, of, random, keyDim, kind, last);
}
