//===- Tokens.cpp - Backward passes of ops of one token -------------------===//

#include "qwen/ABI/KernelOps.h"
#include "qwen/Gradients/Gradients.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

/// 1 / sqrt(mean(x^2) + eps).
static double inverseRms(std::span<const float> x, float eps) {
  double square = 0;
  for (float value : x)
    square += double{value} * value;
  return 1 / std::sqrt(square / static_cast<double>(x.size()) + double{eps});
}

// With r = inverseRms(x, eps), dx = r (w dy - x r^2 mean(w dy x)).
void gradients::rmsNorm(std::span<const float> x, const float *weight,
                        float eps, const float *dy, float *dx) {
  double slope = 0;
  for (size_t i = 0; i < x.size(); ++i)
    slope += double{weight[i]} * dy[i] * x[i];
  const double r = inverseRms(x, eps);
  const auto scale = static_cast<float>(r);
  const auto change =
      static_cast<float>(r * r * r * slope / static_cast<double>(x.size()));
  for (size_t i = 0; i < x.size(); ++i)
    dx[i] += scale * (weight[i] * dy[i]) - x[i] * change;
}

void gradients::rmsNormWeights(std::span<const float> x, float eps,
                               const float *dy, float *dWeight) {
  const auto scale = static_cast<float>(inverseRms(x, eps));
  for (size_t i = 0; i < x.size(); ++i)
    dWeight[i] += dy[i] * (scale * x[i]);
}

// The transpose of a rotation turns back.
void gradients::rope(const float *cos, const float *sin, int64_t half,
                     const float *dy, float *dx) {
  for (int64_t i = 0; i < half; ++i) {
    dx[i] += dy[i] * cos[i] + dy[half + i] * sin[i];
    dx[half + i] += dy[half + i] * cos[i] - dy[i] * sin[i];
  }
}

// With s = sigmoid(gate), silu' = s (1 + gate (1 - s)).
void gradients::swiGlu(std::span<const float> gate, const float *up,
                       const float *dy, float *dGate, float *dUp) {
  std::vector<float> powers(gate.size());
  std::ranges::transform(gate, powers.begin(), [](float x) { return -x; });
  numerics::exp(powers);
  for (size_t i = 0; i < gate.size(); ++i) {
    const float s = 1 / (1 + powers[i]);
    dGate[i] += dy[i] * up[i] * (s * (1 + gate[i] * (1 - s)));
    dUp[i] += dy[i] * (gate[i] * s);
  }
}

// sigmoid' = s (1 - s).
void gradients::gate(std::span<const float> x, const float *gate,
                     const float *dy, float *dx, float *dGate) {
  std::vector<float> powers(x.size());
  std::transform(gate, gate + x.size(), powers.begin(),
                 [](float value) { return -value; });
  numerics::exp(powers);
  for (size_t i = 0; i < x.size(); ++i) {
    const float s = 1 / (1 + powers[i]);
    dx[i] += dy[i] * s;
    dGate[i] += dy[i] * x[i] * (s * (1 - s));
  }
}

void gradients::hadamard(std::span<const float> dy, float *dx) {
  std::vector<float> turned(dy.size());
  numerics::hadamard(dy.data(), std::ssize(dy), turned.data());
  for (size_t i = 0; i < dy.size(); ++i)
    dx[i] += turned[i];
}

/// exp(logit - the largest one) of each logit. Returns their sum.
static double expLogits(std::span<const float> logits, float *powers) {
  const float most = std::ranges::max(logits);
  std::ranges::transform(logits, powers,
                         [&](float logit) { return logit - most; });
  numerics::exp(std::span(powers, logits.size()));
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    sum += double{powers[i]};
  return sum;
}

int32_t gradients::drawToken(std::span<const float> logits, double uniform) {
  std::vector<float> powers(logits.size());
  double left = uniform * expLogits(logits, powers.data());
  // Rounding may leave a rest behind the last token.
  for (size_t i = 0; i + 1 < powers.size(); ++i) {
    left -= double{powers[i]};
    if (left < 0)
      return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(powers.size() - 1);
}

void gradients::logLikelihood(std::span<const float> logits, int32_t token,
                              float *gradient) {
  const double sum = expLogits(logits, gradient);
  const auto scale = static_cast<float>(-1 / sum);
  for (size_t i = 0; i < logits.size(); ++i)
    gradient[i] *= scale;
  gradient[token] += 1;
}

void gradients::divergence(std::span<const float> wanted,
                           std::span<const float> logits, float scale,
                           float *gradient) {
  std::vector<float> powers(wanted.size());
  const double wantedSum = expLogits(wanted, powers.data());
  const double sum = expLogits(logits, gradient);
  const auto part = static_cast<float>(1 / sum);
  const auto wantedPart = static_cast<float>(1 / wantedSum);
  for (size_t i = 0; i < logits.size(); ++i)
    gradient[i] = scale * (gradient[i] * part - powers[i] * wantedPart);
}
