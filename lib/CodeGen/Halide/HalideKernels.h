//===- HalideKernels.h - Algorithms and schedules of kernels ----*- C++ -*-===//
//
// One function for each kind that Halide makes. Each states the algorithm of
// docs/numerics.md first and the schedule behind it. Shims.cpp passes the
// parameters of each pipeline, in this order.
//
// Floats are strict: every operation is rounded by itself and in the order
// written. Sizes come at run time; which multiples they are is stated in
// KernelOps.def, and the schedules rely on it instead of treating tails.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_HALIDE_HALIDEKERNELS_H
#define QWEN_LIB_CODEGEN_HALIDE_HALIDEKERNELS_H

#include "qwen/ABI/KernelTable.h"

#include "Halide.h"

#include <vector>

namespace qwen::halide {

/// What Halide compiles: the generated function takes `arguments` in their
/// order, then a buffer for each output.
struct Kernel {
  std::vector<Halide::Argument> arguments;
  std::vector<Halide::Func> outputs;
};

/// The number of f32 in a vector register of the target.
inline int widthOf(const KernelInfo &kernel) {
  return static_cast<int>(isaInfo(kernel.isa).lanes);
}

// halide::<Function> of KernelOps.def for each kind that Halide makes.
#define QWEN_DECLARE_MLIR(Function)
#define QWEN_DECLARE_Cpp(Function)
#define QWEN_DECLARE_Halide(Function) Kernel Function(const KernelInfo &kernel);
#define QWEN_KERNEL_OP(Op, Function, Provider, ...)                            \
  QWEN_DECLARE_##Provider(Function)
#include "qwen/ABI/KernelOps.def"
#undef QWEN_DECLARE_MLIR
#undef QWEN_DECLARE_Cpp
#undef QWEN_DECLARE_Halide

} // namespace qwen::halide

#endif // QWEN_LIB_CODEGEN_HALIDE_HALIDEKERNELS_H
