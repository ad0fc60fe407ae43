//===- Math.cpp - Elementary functions of docs/numerics.md ----------------===//

#include "qwen/Numerics/Math.h"

#include "Exp.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/WideVectors.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>

using namespace qwen::numerics;

float qwen::numerics::exp(float x) { return expInline(x); }

void qwen::numerics::exp(std::span<float> values) {
  inWideVectors([&] {
    for (float &value : values)
      value = expInline(value);
  });
}

float qwen::numerics::silu(float x) { return x / (1.0f + exp(-x)); }

float qwen::numerics::sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

float qwen::numerics::softplus(float x) {
  // log(1 + t) = 2 atanh(s) for 0 <= t <= 1, so 0 <= s <= 1/3.
  const float t = exp(-std::fabs(x));
  const float s = t / (2.0f + t);
  const float z = s * s;
  float p = 1.0f / 17;
  for (float c : {1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5,
                  1.0f / 3})
    p = p * z + c;
  const float twice = s + s;
  return (x > 0 ? x : 0.0f) + (twice + (twice * z) * p);
}

float qwen::numerics::ropeInvFreq(double theta, int64_t i, int64_t headDim) {
  const float exponent =
      static_cast<float>(2 * i) / static_cast<float>(headDim);
  return 1.0f / static_cast<float>(
                    numerics::pow(theta, static_cast<double>(exponent)));
}

float qwen::numerics::yarnInvFreq(double theta, int64_t i, int64_t headDim,
                                  const Yarn &yarn) {
  // The frequency, as a fraction of the index, that makes this many rotations.
  const auto index = [&](double rotations) {
    return static_cast<double>(headDim) *
           numerics::log(static_cast<double>(yarn.positions) /
                         (rotations * 2 * std::numbers::pi)) /
           (2 * numerics::log(theta));
  };
  const double low = std::max(std::floor(index(yarn.fast)), 0.0);
  double high =
      std::min(std::ceil(index(yarn.slow)), static_cast<double>(headDim - 1));
  if (low == high)
    high += 0.001;
  const auto ramp = static_cast<float>(
      std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  const float frequency = ropeInvFreq(theta, i, headDim);
  return frequency / static_cast<float>(yarn.factor) * ramp +
         frequency * (1.0f - ramp);
}

double qwen::numerics::yarnAttentionFactor(double factor) {
  return factor <= 1 ? 1 : 0.1 * numerics::log(factor) + 1;
}

namespace {
/// Sine and cosine of an angle up to pi / 4 in magnitude, by fdlibm's
/// polynomials.
struct Polynomials {
  double sine, cosine;

  explicit Polynomials(double r) {
    const double z = r * r;
    double p = 1.58969099521155010221e-10;
    for (double c : {-2.50507602534068634195e-08, 2.75573137070700676789e-06,
                     -1.98412698298579493134e-04, 8.33333333332248946124e-03,
                     -1.66666666666666324348e-01})
      p = p * z + c;
    sine = r + (r * z) * p;

    p = -1.13596475577881948265e-11;
    for (double c : {2.08757232129817482790e-09, -2.75573143513906633035e-07,
                     2.48015872894767294178e-05, -1.38888888888741095749e-03,
                     4.16666666666666019037e-02})
      p = p * z + c;
    cosine = (1.0 - 0.5 * z) + (z * z) * p;
  }
};
} // namespace

SinCos qwen::numerics::sinCos(float angle) {
  const double a = angle;
  const double n = std::rint(a * 6.36619772367581382433e-01);
  const Polynomials of((a - n * 1.57079632673412561417) -
                       n * 6.07710050650619224932e-11);

  // n mod 4, in arithmetic that has no undefined case for any n.
  const double quadrant = n - 4.0 * std::floor(n * 0.25);
  const float s = static_cast<float>(of.sine);
  const float c = static_cast<float>(of.cosine);
  if (quadrant == 1.0)
    return {c, -s};
  if (quadrant == 2.0)
    return {-s, -c};
  if (quadrant == 3.0)
    return {-c, s};
  return {s, c};
}

double qwen::numerics::cosPlusSin(int64_t i, int64_t n) {
  // The nearest multiple of pi / 2, and the rest as an exact fraction of it.
  const int64_t quadrant = (8 * i + n) / (2 * n);
  const double rest =
      static_cast<double>(4 * i - quadrant * n) / static_cast<double>(n);
  const Polynomials of(rest * (std::numbers::pi / 2));
  const double sum = of.cosine + of.sine, difference = of.cosine - of.sine;
  // cos and sin are (c, s), (-s, c), (-c, -s), (s, -c), and (c, s) again.
  const double values[] = {sum, difference, -sum, -difference, sum};
  return values[quadrant];
}
