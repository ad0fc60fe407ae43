//===- Heads.cpp - Kernels over heads and pages of attention --------------===//

#include "Expressions.h"
#include "HalideKernels.h"

#include "qwen/ABI/Blocks.h"

#include <functional>

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
