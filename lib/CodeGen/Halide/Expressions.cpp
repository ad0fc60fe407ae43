//===- Expressions.cpp - Expressions that the kernels share ---------------===//

#include "Expressions.h"

#include <initializer_list>
#include <vector>

using namespace qwen;
using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::reinterpret;
using Halide::Var;

halide::ReducedPower halide::reduceAnyPower(const Expr &any) {
  const Expr x = Halide::min(any, 88.375f);
  // Arguments below the least one give +0 in the end; here they only must not
  // leave the range of 2^n.
  const Expr least = -87.3f;
  const Expr bounded = Halide::max(x, least);
  const Expr n = Halide::round(bounded * 0x1.715476p+0f);
  // ln 2 in two parts; n times the first is exact.
  const Expr r = (bounded - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;
  // n is in -126..127, so 2^n is a normal number.
  const Expr power = reinterpret<float>((cast<int32_t>(n) + 127) << 23);
  return {r, Halide::select(x < least, 0.0f, power)};
}

Expr halide::exp(const ReducedPower &power) {
  const Expr &r = power.r;
  Expr p = 0x1.a0d2cep-13f;
  for (float c : {0x1.6e879cp-10f, 0x1.11121p-7f, 0x1.555382p-5f,
                  0x1.555554p-3f, 0x1p-1f})
    p = p * r + c;
  p = p * (r * r);
  p = p + r;
  return (p + 1.0f) * power.scale;
}

Expr halide::exp(const Expr &x) { return exp(reduceAnyPower(x)); }

Expr halide::silu(const Expr &x, const ReducedPower &power) {
  return x / (1.0f + exp(power));
}

Expr halide::silu(const Expr &x) { return silu(x, reduceAnyPower(-x)); }

halide::SinCos halide::sinCos(const Expr &angle) {
  const Expr a = cast<double>(angle);
  const Expr n = Halide::round(a * Expr(6.36619772367581382433e-01));
  // pi/2 in two parts.
  const Expr r = (a - n * Expr(1.57079632673412561417)) -
                 n * Expr(6.07710050650619224932e-11);
  const Expr z = r * r;

  Expr p = Expr(1.58969099521155010221e-10);
  for (double c : {-2.50507602534068634195e-08, 2.75573137070700676789e-06,
                   -1.98412698298579493134e-04, 8.33333333332248946124e-03,
                   -1.66666666666666324348e-01})
    p = p * z + Expr(c);
  const Expr sine = cast<float>(r + (r * z) * p);

  p = Expr(-1.13596475577881948265e-11);
  for (double c : {2.08757232129817482790e-09, -2.75573143513906633035e-07,
                   2.48015872894767294178e-05, -1.38888888888741095749e-03,
                   4.16666666666666019037e-02})
    p = p * z + Expr(c);
  const Expr cosine = cast<float>((Expr(1.0) - Expr(0.5) * z) + (z * z) * p);

  const Expr quadrant = n - Expr(4.0) * Halide::floor(n * Expr(0.25));
  return {Halide::select(quadrant == Expr(1.0), cosine, quadrant == Expr(2.0),
                         -sine, quadrant == Expr(3.0), -cosine, sine),
          Halide::select(quadrant == Expr(1.0), -sine, quadrant == Expr(2.0),
                         -cosine, quadrant == Expr(3.0), sine, cosine)};
}

Expr halide::magnitudeBits(const Expr &x) {
  return reinterpret<int32_t>(x) & 0x7fffffff;
}

Expr halide::isNotFinite(const Expr &bits) {
  return cast<int32_t>(bits >= 0x7f800000);
}

Expr halide::combineLanes(const Lane &lane, Combine combine) {
  std::vector<Expr> values;
  values.reserve(kLanes);
  for (int j = 0; j < kLanes; ++j)
    values.push_back(lane(j));
  for (size_t half = kLanes / 2; half >= 1; half /= 2)
    for (size_t j = 0; j < half; ++j)
      values[j] = combine(values[j], values[j + half]);
  return values[0];
}

Expr halide::add(const Expr &a, const Expr &b) { return a + b; }

Expr halide::larger(const Expr &a, const Expr &b) { return Halide::max(a, b); }

void halide::scheduleLanes(Func lanes, const Var &j, int width) {
  lanes.bound(j, 0, kLanes)
      .store_in(Halide::MemoryType::Stack)
      .vectorize(j, width)
      .unroll(j);
  lanes.update(0).vectorize(j, width).unroll(j);
}

void halide::scheduleElements(Func f, const Var &i, int width,
                              Halide::TailStrategy tail) {
  Var step, value;
  f.split(i, step, value, kLanes, tail).vectorize(value, width).unroll(value);
}
