//===- KernelModel.h - What a kernel's loops reach on a CPU -----*- C++ -*-===//

#ifndef QWEN_MODEL_KERNELMODEL_H
#define QWEN_MODEL_KERNELMODEL_H

#include "qwen/Model/CpuModel.h"

namespace qwen {

/// The call that is modelled.
struct KernelCall {
  /// Rows of activations: passes of the loop over them, where a kernel unpacks
  /// its weights for many.
  int64_t tokens = 64;
  /// Panels of 16 outputs that share what is done to the activations there.
  int64_t panels = 4;
};

/// One pass of a kernel's loop.
struct KernelRate {
  /// Multiplications of the pass.
  int64_t macs;
  /// Cycles of it among many such passes.
  double cycles;
  /// Multiplications a cycle of its dot instructions alone.
  double peak;

  double macsPerCycle() const { return double(macs) / cycles; }
};

/// Models the kernel of ours that `body` is: its innermost loop with the most
/// dots (integer ones, or f32 multiplications with addition where there are
/// none) and, where scales are widened around it, the whole loop over blocks
/// with loads, unpacking, scales, the update after the block and stores.
/// Branches are taken as in a long product. Throws Error where there is no such
/// loop.
KernelRate modelKernel(const CpuModel &cpu,
                       llvm::ArrayRef<MachineInstruction> body,
                       const KernelCall &call);

/// Models a kernel of another project: the innermost loop with the most dots
/// and, where that does not scale its sums, the one around it, which does.
KernelRate modelLoop(const CpuModel &cpu,
                     llvm::ArrayRef<MachineInstruction> body);

} // namespace qwen

#endif // QWEN_MODEL_KERNELMODEL_H
