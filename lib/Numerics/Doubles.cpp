//===- Doubles.cpp - Elementary functions in double -----------------------===//

#include "qwen/Numerics/Doubles.h"

#include "Exp.h"

#include "qwen/Numerics/WideVectors.h"

#include <bit>
#include <cstddef>
#include <cstdint>

using namespace qwen;

/// ln 2 in two parts; an integer below 2^20 times the first is exact.
static constexpr double kLn2High = 0x1.62e42feep-1,
                        kLn2Low = 0x1.a39ef35793c76p-33;

/// exp without a branch, so that loops over it become vectors.
static double expOf(double x) {
  const bool isTiny = x < -708;
  x = x < 709 ? x : 709;
  x = isTiny ? -708 : x;
  // The sum rounds to an integer, which its last bits are.
  constexpr double kOnes = 0x1.8p52;
  const double rounded = x * 0x1.71547652b82fep+0 + kOnes;
  const double n = rounded - kOnes;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // The Taylor series; |r| is at most 0.3466.
  double p = 1.0 / 6227020800;
  for (double factorial : {479001600.0, 39916800.0, 3628800.0, 362880.0,
                           40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0})
    p = p * r + 1 / factorial;
  p = p * (r * r);
  p = p + r;
  p = p + 1;
  // n is in -1021..1023, so 2^n is a normal number.
  const uint64_t exponent = std::bit_cast<uint64_t>(rounded) + 1023;
  const double result = p * std::bit_cast<double>(exponent << 52);
  return isTiny ? 0 : result;
}

double qwen::numerics::exp(double x) { return expOf(x); }

/// Lanes of a sum: every vector width of 16 and less can follow their order.
static constexpr size_t kSumLanes = 16;

[[gnu::always_inline]] static inline double sumOf(double (&lanes)[kSumLanes]) {
  for (size_t width = kSumLanes / 2; width; width /= 2)
    for (size_t lane = 0; lane < width; ++lane)
      lanes[lane] += lanes[lane + width];
  return lanes[0];
}

double qwen::numerics::sumExp(std::span<const float> values, float greatest) {
  double lanes[kSumLanes] = {};
  const auto add = [&](size_t lane, float value) {
    lanes[lane] += expOf(double{value} - greatest);
  };
  size_t i = 0;
  for (; i + kSumLanes <= values.size(); i += kSumLanes)
    for (size_t lane = 0; lane < kSumLanes; ++lane)
      add(lane, values[i + lane]);
  for (size_t lane = 0; i < values.size(); ++i, ++lane)
    add(lane, values[i]);
  return sumOf(lanes);
}

double qwen::numerics::sumWeights(std::span<const float> values,
                                  float greatest) {
  return inWideVectors([&] {
    double lanes[kSumLanes] = {};
    size_t i = 0;
    for (; i + kSumLanes <= values.size(); i += kSumLanes) {
      // Two loops, so that the first has vectors of f32.
      float weights[kSumLanes];
      for (size_t lane = 0; lane < kSumLanes; ++lane)
        weights[lane] = expInline(values[i + lane] - greatest);
      for (size_t lane = 0; lane < kSumLanes; ++lane)
        lanes[lane] += weights[lane];
    }
    for (size_t lane = 0; i < values.size(); ++i, ++lane)
      lanes[lane] += expInline(values[i] - greatest);
    return sumOf(lanes);
  });
}

double qwen::numerics::log(double x) {
  // x = m * 2^k with m from sqrt(1/2) to sqrt(2).
  const auto bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const auto k = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m =
      std::bit_cast<double>(bits - (static_cast<uint64_t>(k) << 52));
  const double f = m - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  double p = 0x1.2f112df3e5244p-3;
  for (double c :
       {0x1.39a09d078c69fp-3, 0x1.7466496cb03dep-3, 0x1.c71c51d8e78afp-3,
        0x1.2492494229359p-2, 0x1.999999997fa04p-2, 0x1.5555555555593p-1})
    p = p * z + c;
  p = p * z;
  const double half = 0.5 * f * f;
  const auto n = static_cast<double>(k);
  return n * kLn2High - ((half - (s * (half + p) + n * kLn2Low)) - f);
}

double qwen::numerics::pow(double base, double exponent) {
  return exp(exponent * log(base));
}
