//===- KernelModel.h - What a kernel's loops reach on a CPU -----*- C++ -*-===//

#ifndef QWEN_COSTMODEL_KERNELMODEL_H
#define QWEN_COSTMODEL_KERNELMODEL_H

#include "qwen/CodeGen/Schedule/Schedule.h"
#include "qwen/CostModel/CpuModel.h"

namespace qwen {

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

/// Models the kernel `row` that `body` is, made with `schedule`: its
/// innermost loop with the most dots (integer ones, or f32 multiplications with
/// addition where there are none) and, where scales are widened around it, the
/// whole loop over blocks with loads, unpacking, scales, the update after the
/// block and stores; where weights are unpacked for many tokens, for one chunk
/// of them and the schedule's panels. Branches are taken as in a long product.
/// Throws Error where there is no such loop.
KernelRate modelKernel(const CpuModel &cpu,
                       llvm::ArrayRef<MachineInstruction> body,
                       const KernelInfo &row, const KernelSchedule &schedule);

/// Models a kernel of another project: the innermost loop with the most dots
/// and, where that does not scale its sums, the one around it, which does.
KernelRate modelLoop(const CpuModel &cpu,
                     llvm::ArrayRef<MachineInstruction> body);

} // namespace qwen

#endif // QWEN_COSTMODEL_KERNELMODEL_H
