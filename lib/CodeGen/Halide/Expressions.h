//===- Expressions.h - Expressions that the kernels share -------*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_HALIDE_EXPRESSIONS_H
#define QWEN_LIB_CODEGEN_HALIDE_EXPRESSIONS_H

#include "Halide.h"

#include <functional>

namespace qwen::halide {

/// Values of one step of a schedule, and lanes of every float sum: one AVX-512
/// register, two of AVX2, four of NEON.
inline constexpr int kLanes = 16;

/// x as n ln 2 + r: scale is 2^n, or +0 below the least argument of
/// docs/numerics.md's e^x.
struct ReducedPower {
  Halide::Expr r;
  Halide::Expr scale;
};
/// Above 88.375, x counts as 88.375.
ReducedPower reduceAnyPower(const Halide::Expr &x);

/// e^x of docs/numerics.md, from x or from its reduction.
Halide::Expr exp(const Halide::Expr &x);
Halide::Expr exp(const ReducedPower &power);

/// x / (1 + exp(-x)), from x alone or with the reduction of -x.
Halide::Expr silu(const Halide::Expr &x);
Halide::Expr silu(const Halide::Expr &x, const ReducedPower &power);

/// Sine and cosine of an f32 angle, computed in f64 and rounded once.
struct SinCos {
  Halide::Expr sin;
  Halide::Expr cos;
};
SinCos sinCos(const Halide::Expr &angle);

/// Bits of |x| as int32. They have the order of |x|, with infinities and then
/// NaNs above all finite values, on every instruction set.
Halide::Expr magnitudeBits(const Halide::Expr &x);

/// Whether magnitudeBits(x) say that x is an infinity or a NaN, as int32 0 or
/// 1.
Halide::Expr isNotFinite(const Halide::Expr &bits);

/// Combines lane(0 .. kLanes-1) as a tree: j with j + 8, then with j + 4, 2, 1.
using Lane = std::function<Halide::Expr(int)>;
using Combine = Halide::Expr (*)(const Halide::Expr &, const Halide::Expr &);
Halide::Expr combineLanes(const Lane &lane, Combine combine);

/// The two combinations in use: addition and the larger of two.
Halide::Expr add(const Halide::Expr &a, const Halide::Expr &b);
Halide::Expr larger(const Halide::Expr &a, const Halide::Expr &b);

/// Schedules a Func whose first update accumulates into kLanes values of `j`:
/// `width` values of `j` in each register.
void scheduleLanes(Halide::Func lanes, const Halide::Var &j, int width);

/// Computes `f` in steps of kLanes values of its dimension `i`. The extent is a
/// multiple of kLanes where `tail` is RoundUp.
void scheduleElements(Halide::Func f, const Halide::Var &i, int width,
                      Halide::TailStrategy tail);

} // namespace qwen::halide

#endif // QWEN_LIB_CODEGEN_HALIDE_EXPRESSIONS_H
