//===- LinearAttentionCases.cpp - Cases of the kernels of linear attention ===//

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

/// Runs some tokens in one call. A value of one of them may be `bad`.
static void checkRule(Cases &cases, const Compared<KernelOp::DeltaRule> &of,
                      Random &random, int64_t keyDim, int64_t tokens,
                      Values kind, float bad) {
  const auto scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(keyDim)));
  const int64_t stride = 2 * keyDim + kDeltaColumns + 4;
  const int64_t resultStride = kDeltaColumns + 8;
  const int64_t decayStride = 2, betaStride = 3;
  Guarded<float> x = random.floats(tokens * stride - 4, kind);
  Guarded<float> decay = random.floats((tokens - 1) * decayStride + 1),
                 beta = random.floats((tokens - 1) * betaStride + 1);
  for (float &value : decay)
    value = 1 - std::fabs(value) / 4;
  for (float &value : beta)
    value = std::fabs(value);
  Guarded<float> state = random.floats(kDeltaColumns * keyDim);
  Guarded<float> y((tokens - 1) * resultStride + kDeltaColumns, kNaN);
  Guarded<float> stateNeeded(state), needed(y), scratch(4 * keyDim, kNaN);
  const int64_t badToken = random.below(tokens);
  if (bad != 0)
    x[badToken * stride + 2 * keyDim + random.below(kDeltaColumns)] = bad;
  const auto run = [&](DeltaRuleFn *fn, float *before, float *to) {
    return fn(x.data(), x.data() + keyDim, x.data() + 2 * keyDim, stride,
              decay.data(), decayStride, beta.data(), betaStride, tokens,
              keyDim, scale, before, to, resultStride, scratch.data());
  };
  cases.start("key_dim ", keyDim, ", tokens ", tokens, ", values ",
              valuesName(kind), bad != 0 ? ", too large in token " : "",
              bad != 0 ? std::to_string(badToken) : "");
  const int64_t finite = run(of.kernel, state.data(), y.data());
  const int64_t finiteNeeded =
      run(of.reference, stateNeeded.data(), needed.data());
  if (finite != finiteNeeded)
    cases.fail("the first token that is not finite is " +
               std::to_string(finite) + " when the reference has " +
               std::to_string(finiteNeeded));
  if (finite == tokens) {
    cases.expectSame(state, stateNeeded, "state");
  } else {
    // The results of that token and those after it are unspecified.
    std::fill(y.begin() + finite * resultStride, y.end(), kNaN);
    std::fill(needed.begin() + finite * resultStride, needed.end(), kNaN);
  }
  cases.expectSame(y, needed, "y");
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::DeltaRule> &of) {
  Random random(23);
  for (int64_t keyDim : {32, 64, 96, 128, 256})
    for (Values kind : kValues) {
      for (int64_t tokens : {1, 2, 3, 16})
        checkRule(cases, of, random, keyDim, tokens, kind, 0);
      for (float bad : {kMax, kInf, kNaN})
        checkRule(cases, of, random, keyDim, 3, kind, bad);
    }
}
