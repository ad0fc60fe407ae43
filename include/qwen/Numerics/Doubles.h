//===- Doubles.h - Elementary functions in double ---------------*- C++ -*-===//
//
// For what is computed once a token, not in kernels: no result depends on the C
// library. docs/numerics.md, "Sampling", has the steps.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_DOUBLES_H
#define QWEN_NUMERICS_DOUBLES_H

#include <span>

namespace qwen::numerics {

/// The sum of exp(x_i - greatest) in double: term i is added to lane i % 16,
/// and lane j gets lane j + w for w = 8, 4, 2, 1.
double sumExp(std::span<const float> values, float greatest);

/// The same of the exp of f32 (docs/numerics.md, "exp, SwiGLU, ..."), four
/// times as fast.
double sumWeights(std::span<const float> values, float greatest);

/// e^x in double: at most 1.5 ulp off, e^0 = 1, and +0 below -708. Arguments
/// above 709 count as 709.
double exp(double x);

/// The natural logarithm of a normal number, by the polynomial of fdlibm
/// (e_log.c): at most 1 ulp off, log(1) = 0.
double log(double x);

/// exp(exponent * log(base)) of a base above 0.
double pow(double base, double exponent);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_DOUBLES_H
