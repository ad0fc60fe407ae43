//===- DeltaRule.cpp - References of linear attention ---------------------===//

#include "qwen/Numerics/Kernels.h"

#include "Lanes.h"
#include "qwen/Numerics/Math.h"

#include <cmath>
#include <vector>

using namespace qwen;

void numerics::shortConvolution(const float *x, int64_t stride,
                                const float *weights, int64_t tokens, int64_t n,
                                int64_t channels, float *state, float *y,
                                int64_t resultStride) {
  for (int64_t token = 0; token < tokens;
       ++token, x += stride, y += resultStride)
    for (int64_t c = 0; c < n; ++c) {
      const float inputs[kConvolutionTaps] = {state[c], state[channels + c],
                                              state[2 * channels + c], x[c]};
      float acc = 0.0f;
      for (int64_t j = 0; j < kConvolutionTaps; ++j)
        acc = std::fma(weights[kConvolutionTaps * c + j], inputs[j], acc);
      for (int64_t j = 1; j < kConvolutionTaps; ++j)
        state[(j - 1) * channels + c] = inputs[j];
      y[c] = silu(acc);
    }
}

void numerics::deltaGates(const float *a, const float *b, const float *rate,
                          const float *bias, int64_t n, float *decay,
                          float *beta) {
  for (int64_t i = 0; i < n; ++i) {
    decay[i] = numerics::exp(-(rate[i] * softplus(a[i] + bias[i])));
    beta[i] = sigmoid(b[i]);
  }
}

/// x / sqrt(sum of x^2 + 1e-6), times `scale`.
static std::vector<float> normed(const float *x, int64_t n, float scale) {
  numerics::Lanes lanes;
  for (int64_t i = 0; i < n; ++i)
    lanes.add(i, x[i] * x[i]);
  const float r = 1.0f / std::sqrt(lanes.sum() + 1e-6f);
  std::vector<float> y(x, x + n);
  for (float &value : y)
    value = (value * r) * scale;
  return y;
}

/// The sum of x[i] times row i of a column in four chains, i mod 4, and a tree.
/// Rows are 16 floats apart.
static float chains(const std::vector<float> &x, const float *column) {
  float chain[4] = {};
  for (size_t i = 0; i < x.size(); ++i)
    chain[i % 4] = std::fma(x[i], column[16 * i], chain[i % 4]);
  return (chain[0] + chain[2]) + (chain[1] + chain[3]);
}

int64_t numerics::deltaRule(const float *q, const float *k, const float *v,
                            int64_t stride, const float *decay,
                            int64_t decayStride, const float *beta,
                            int64_t betaStride, int64_t tokens, int64_t keyDim,
                            float scale, float *state, float *y,
                            int64_t resultStride, float * /*scratch*/) {
  for (int64_t token = 0; token < tokens; ++token) {
    const std::vector<float> query = normed(q + token * stride, keyDim, scale);
    const std::vector<float> key = normed(k + token * stride, keyDim, 1);
    const float decays = decay[token * decayStride];
    float *read = y + token * resultStride;
    for (int64_t j = 0; j < kDeltaColumns; ++j) {
      float *column = state + j / 16 * 16 * keyDim + j % 16;
      const float old = decays * chains(key, column);
      const float change =
          beta[token * betaStride] * (v[token * stride + j] - old);
      for (size_t i = 0; i < key.size(); ++i) {
        float &s = column[16 * i];
        s = std::fma(key[i], change, decays * s);
      }
      read[j] = chains(query, column);
    }
    if (checkFinite(read, kDeltaColumns))
      return token;
  }
  return tokens;
}

void numerics::sigmoidGate(const float *x, const float *gate, int64_t n,
                           float *y) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = x[i] * sigmoid(gate[i]);
}
