//===- Heads.cpp - Kernels over heads and pages of attention --------------===//

#include "Expressions.h"
#include "HalideKernels.h"

#include "qwen/ABI/Blocks.h"

#include <functional>
#include <limits>

using namespace qwen;
using namespace qwen::halide;
using Halide::cast;
using Halide::Expr;
using Halide::Float;
using Halide::Func;
using Halide::ImageParam;
using Halide::Param;
using Halide::RDom;
using Halide::TailStrategy;
using Halide::Var;

/// Rotates (x(i), x(i + half)); y's second dimension is the half.
static Func rotate(const std::function<Expr(const Expr &)> &x, ImageParam cos,
                   ImageParam sin, const Param<int32_t> &half, int width) {
  Var i("i"), part("part");
  Func y("y");
  const Expr first = x(i), second = x(i + half);
  y(i, part) = Halide::mux(part, {first * cos(i) - second * sin(i),
                                  second * cos(i) + first * sin(i)});

  cos.dim(0).set_min(0);
  sin.dim(0).set_min(0);
  y.output_buffer().dim(0).set_bounds(0, half);
  y.output_buffer().dim(1).set_bounds(0, 2).set_stride(half);
  // Half a head is a multiple of four, and of sixteen in every published model.
  y.bound(part, 0, 2).reorder(part, i).unroll(part);
  Halide::Stage wide = y.specialize(half % kLanes == 0);
  wide.vectorize(i, width, TailStrategy::RoundUp);
  y.vectorize(i, 4, TailStrategy::RoundUp);
  return y;
}

Kernel halide::rope(const KernelInfo &kernel) {
  ImageParam x(Float(32), 1, "x"), cos(Float(32), 1, "cos"),
      sin(Float(32), 1, "sin");
  Param<int32_t> half("half");
  x.dim(0).set_min(0);
  const Func y = rotate([&](const Expr &i) { return x(i); }, cos, sin, half,
                        widthOf(kernel));
  return {{x, cos, sin, half}, {y}};
}

Kernel halide::normRope(const KernelInfo &kernel) {
  ImageParam x(Float(32), 1, "x"), w(Float(32), 1, "w"),
      cos(Float(32), 1, "cos"), sin(Float(32), 1, "sin");
  Param<int32_t> half("half");
  Param<float> eps("eps");
  Var j("j");
  Func squares("squares"), scale("scale");
  const Expr size = 2 * half;
  RDom r(0, size / kLanes);
  // The size is a multiple of eight: the rest goes to the first lanes.
  RDom tail(0, size % kLanes);
  squares(j) = 0.0f;
  squares(j) += x(r * kLanes + j) * x(r * kLanes + j);
  const Expr last = x(size / kLanes * kLanes + tail);
  squares(tail) += last * last;
  squares.update(1).unscheduled();
  const Expr mean = combineLanes([&](int lane) { return squares(lane); }, add) /
                    cast<float>(size);
  scale() = 1.0f / Halide::sqrt(mean + eps);

  x.dim(0).set_min(0);
  w.dim(0).set_min(0);
  squares.compute_root();
  scheduleLanes(squares, j, widthOf(kernel));
  scale.compute_root().store_in(Halide::MemoryType::Stack);
  const Func y = rotate([&](const Expr &i) { return (x(i) * scale()) * w(i); },
                        cos, sin, half, widthOf(kernel));
  return {{x, w, cos, sin, half, eps}, {y}};
}

/// combineLanes over the first dimension of a Func, with each level of the tree
/// in a register, computed for each `query` of `user`.
static Expr foldLanes(const Func &lanes, Combine combine, const Func &user,
                      const Var &query) {
  Var j("j");
  Func from = lanes;
  for (int half = kLanes / 2; half >= 2; half /= 2) {
    Func level("level");
    level(j, query) = combine(from(j, query), from(j + half, query));
    level.compute_at(user, query)
        .bound(j, 0, half)
        .store_in(Halide::MemoryType::Stack)
        .vectorize(j, half);
    from = level;
  }
  return combine(from(0, query), from(1, query));
}

Kernel halide::softmaxPage(const KernelInfo &kernel) {
  constexpr int slots = static_cast<int>(kPageTokens);
  ImageParam s(Float(32), 2, "s");
  Param<int32_t> n("n");
  Var j("j"), query("query");
  Func tops("tops"), m("m"), reduced("reduced"), p("p"), lanes("lanes"), l("l");
  RDom r(0, slots / kLanes);
  // Slots at and past n hold anything. Minus infinity replaces them: its power
  // is +0.
  const Expr none = -std::numeric_limits<float>::infinity();
  const auto visible = [&](const Expr &slot) {
    return Halide::select(slot < n, s(slot, query), none);
  };
  tops(j, query) = none;
  tops(j, query) = Halide::max(tops(j, query), visible(r * kLanes + j));
  m(query) = largestScore(foldLanes(tops, larger, m, query));
  // A difference from the largest is never positive.
  const ReducedPower power = reducePower(visible(j) - m(query));
  reduced(j, query) = {power.r, power.scale};
  p(j, query) = halide::exp({reduced(j, query)[0], reduced(j, query)[1]});
  lanes(j, query) = 0.0f;
  lanes(j, query) += p(r * kLanes + j, query);
  l(query) = foldLanes(lanes, add, l, query);

  s.dim(0).set_bounds(0, slots).dim(1).set_min(0).set_stride(slots);
  p.output_buffer().dim(0).set_bounds(0, slots);
  p.output_buffer().dim(1).set_min(0).set_stride(slots);
  for (const Func &each : {m, l})
    each.output_buffer().dim(0).set_min(0);
  // All queries together: the steps of one query wait for each other, the steps
  // of several queries do not.
  const auto scheduleSums = [&](Func sums, const Func &user) {
    sums.compute_at(user, query);
    scheduleLanes(sums, j, widthOf(kernel));
    sums.update().unroll(r);
  };
  scheduleSums(tops, m);
  scheduleSums(lanes, l);
  m.compute_root();
  m.specialize(n == slots);
  p.compute_root();
  l.compute_root();
  // Four vectors at once, for each step of a power waits for the one before; in
  // two halves, so that registers last and a processor sees the steps of
  // several queries.
  reduced.compute_at(p, query)
      .store_in(Halide::MemoryType::Stack)
      .bound(j, 0, slots);
  for (Halide::Stage half :
       {Halide::Stage(reduced), Halide::Stage(p), p.specialize(n == slots)}) {
    Var step("step"), value("value");
    half.split(j, step, value, 4 * widthOf(kernel), TailStrategy::RoundUp)
        .vectorize(value);
  }
  return {{s, n}, {p, m, l}};
}

Kernel halide::mergePage(const KernelInfo &) {
  constexpr int step = 8;
  ImageParam mOld(Float(32), 1, "m_old"), lOld(Float(32), 1, "l_old"),
      m(Float(32), 1, "m"), l(Float(32), 1, "l"), oOld(Float(32), 2, "o_old"),
      o(Float(32), 2, "o");
  Var i("i"), query("query"), group("group"), head("head");
  Func a("a"), b("b"), mNew("m_new"), lNew("l_new"), oNew("o_new");
  mNew(query) = largestScore(Halide::max(mOld(query), m(query)));
  const Expr factor = halide::exp(mOld(query) - mNew(query));
  const Expr pageFactor = halide::exp(m(query) - mNew(query));
  lNew(query) = lOld(query) * factor + l(query) * pageFactor;
  a(query) = factor;
  b(query) = pageFactor;
  oNew(i, query) = oOld(i, query) * a(query) + o(i, query) * b(query);

  for (ImageParam each : {mOld, lOld, m, l})
    each.dim(0).set_min(0);
  for (const Func &each : {mNew, lNew})
    each.output_buffer().dim(0).set_min(0);
  const Expr headDim = oOld.dim(0).extent();
  for (const auto &each : {Halide::OutputImageParam(oOld),
                           Halide::OutputImageParam(o), oNew.output_buffer()}) {
    each.dim(0).set_bounds(0, headDim);
    each.dim(1).set_min(0).set_stride(headDim);
  }
  // Eight queries together, so that the work of each query is in vectors.
  mNew.compute_root().vectorize(query, step, TailStrategy::RoundUp);
  lNew.compute_root().vectorize(query, step, TailStrategy::RoundUp);
  // A head is a multiple of eight values.
  oNew.split(query, group, head, step, TailStrategy::GuardWithIf)
      .vectorize(i, 8, TailStrategy::RoundUp);
  for (Func each : {a, b})
    each.compute_at(oNew, group)
        .store_in(Halide::MemoryType::Stack)
        .vectorize(query, step, TailStrategy::RoundUp)
        .bound_extent(query, step);
  return {{mOld, lOld, oOld, m, l, o}, {mNew, lNew, oNew}};
}

Kernel halide::finishAttention(const KernelInfo &) {
  ImageParam o(Float(32), 1, "o");
  Param<float> l("l");
  Var i("i");
  Func y("y");
  y(i) = o(i) / l;

  o.dim(0).set_min(0);
  y.output_buffer().dim(0).set_min(0);
  y.vectorize(i, 8, TailStrategy::RoundUp);
  return {{o, l}, {y}};
}
