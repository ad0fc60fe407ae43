//===- Kernels.h - Algorithms and schedules of the kernels ------*- C++ -*-===//
//
// One function for each op that Halide provides. Each states the algorithm of
// docs/numerics.md first and the schedule behind it. The parameters of a
// pipeline and their order are what HalideAdapter.cpp passes.
//
// Floats are strict: every operation is rounded by itself and in the order
// written. Sizes come at run time; which multiples they are is stated in
// KernelABI.h, and the schedules rely on it instead of treating tails.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_HALIDE_KERNELS_H
#define QWEN_LIB_CODEGEN_HALIDE_KERNELS_H

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

// `width` is the number of f32 in a vector register of the target.

/// For f32 or bf16.
Kernel embedFloat(WeightFormat format);
/// For a format with integers.
Kernel embedQuantized(WeightFormat format);
Kernel ropeTable();
Kernel rmsNormF32(int width);
Kernel rmsNormQ8(int width);
Kernel quantizeQ8(int width);
Kernel swiGluF32(int width);
Kernel swiGluQ8(int width);
Kernel rope(int width);
Kernel normRope(int width);
/// For `format` F32 or F16; `stride` is that of the slot, in elements.
Kernel append(KernelFormat format, int stride);
Kernel softmaxPage(int width);
Kernel mergePage();
Kernel finishAttention();
Kernel checkFinite(int width);

} // namespace qwen::halide

#endif // QWEN_LIB_CODEGEN_HALIDE_KERNELS_H
