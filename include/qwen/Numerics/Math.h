//===- Math.h - Elementary functions of docs/numerics.md --------*- C++ -*-===//
//
// The project's own elementary functions. Generated code computes the same
// steps in the same order, so results are equal everywhere, bit for bit. NaN
// and infinity give an unspecified result (the call is defined); forward flags
// them before there is an answer.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_MATH_H
#define QWEN_NUMERICS_MATH_H

#include "qwen/ABI/ModelShape.h"
#include "qwen/Support/Fact.h"

#include <cstdint>
#include <span>

namespace qwen::numerics {

/// e^x, each step rounded to f32: at most 0.98 ulp off, e^0 = 1, and +0 below
/// -87.3. Arguments above 88.375 count as 88.375.
float exp(float x);

/// The same of each of some numbers, in their place.
void exp(std::span<float> values);

/// x / (1 + exp(-x)).
float silu(float x);

// The functions of ElementMaps.def (docs/numerics.md).
#define QWEN_ELEMENT_MAP(Map, Name) float Name(float x);
#include "qwen/ABI/ElementMaps.def"

/// log(1 + e^x), each step rounded to f32: at most 3 ulp off.
float softplus(float x);

/// Frequency i < headDim / 2 of rotary embedding: 1 / f32(theta^f32(2i /
/// headDim)), the power in double and the rest in f32 (transformers' value).
/// The power is numerics::pow, which is the same on each machine.
float ropeInvFreq(double theta, int64_t i, int64_t headDim);

/// ropeInvFreq with YaRN.
float yarnInvFreq(double theta, int64_t i, int64_t headDim, const Yarn &yarn);

/// The default of the factor of cos and sin.
double yarnAttentionFactor(double factor);

struct SinCos {
  float sin;
  float cos;
};

/// Sine and cosine in double precision, rounded once to f32. Reduction by pi/2
/// in two parts, then fdlibm's k_sin and k_cos polynomials by Horner.
SinCos sinCos(float angle);

/// cos(a) + sin(a) of a = 2 pi i / n in double, by the same polynomials, for
/// 0 <= i < n.
double cosPlusSin(int64_t i, int64_t n);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_MATH_H
