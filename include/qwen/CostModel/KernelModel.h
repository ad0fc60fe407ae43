//===- KernelModel.h - Cycles of a kernel's loops on a CPU ------*- C++ -*-===//

#ifndef QWEN_COSTMODEL_KERNELMODEL_H
#define QWEN_COSTMODEL_KERNELMODEL_H

#include "qwen/CodeGen/Schedule/Schedule.h"
#include "qwen/CostModel/CpuModel.h"

namespace qwen {

/// One pass of a kernel's loop.
struct KernelRate {
  /// Multiplications of the pass.
  int64_t macs;
  /// Cycles of the pass, one of many.
  double cycles;
  /// Multiplications a cycle if its dot instructions ran alone.
  double peak;

  double macsPerCycle() const { return double(macs) / cycles; }
};

/// Models the kernel `kernel` with the function `body` and `schedule`. The
/// model covers the innermost loop with the most dots (integer dots, else f32
/// fmas). If the loop around it widens scales, the model covers that whole loop
/// over blocks: loads, unpacking, scales, the update after the block, stores.
/// For kernels that unpack weights once for many tokens, it covers one strip of
/// tokens and the schedule's panels; on x86, where a strip has many tiles, only
/// a tile. Branches go as in a long product. Throws
/// Error if there is no such loop.
KernelRate modelKernel(const CpuModel &cpu,
                       llvm::ArrayRef<MachineInstruction> body,
                       const KernelInfo &kernel, KernelSchedule schedule);

/// Models a kernel of another project: the innermost loop with the most dots
/// or, if that loop does not scale its sums, the loop around it, which does.
KernelRate modelLoop(const CpuModel &cpu,
                     llvm::ArrayRef<MachineInstruction> body);

} // namespace qwen

#endif // QWEN_COSTMODEL_KERNELMODEL_H
