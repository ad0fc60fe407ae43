//===- CallModel.h - What a call of a kernel takes on a CPU -----*- C++ -*-===//

#ifndef QWEN_COSTMODEL_CALLMODEL_H
#define QWEN_COSTMODEL_CALLMODEL_H

#include "qwen/ABI/KernelTable.h"
#include "qwen/CostModel/CpuModel.h"

namespace qwen {

/// Sizes of a call, as KernelABI.h has them.
struct CallSize {
  /// Values of a row, of a head or of half of one, slots of a page: the size
  /// that the kernel takes.
  int64_t n;
  /// Rows of SoftmaxPage and MergePage.
  int64_t rows = 1;

  auto operator<=>(const CallSize &) const = default;
};

/// The instructions that a call with these whole numbers as arguments, in
/// registers, executes, in order. Where a branch depends on data, which is
/// whatever comes from memory or from vectors, it goes to the next instruction.
/// Throws Error where the function calls another one, does not end, or computes
/// a whole number in a way that is not known.
Trace executeCall(const CpuModel &cpu, llvm::ArrayRef<MachineInstruction> body,
                  llvm::ArrayRef<uint64_t> arguments);

/// Cycles of a call of `row`, one that Halide makes and whose function `body`
/// is, among many such calls: the call is executed on paper (executeCall), so
/// that each loop runs as often as for that size, and priced with what sets its
/// arguments. Nothing is missing in the first cache. Quantizers see no block of
/// zeros. Throws Error as executeCall does, and for other rows.
double modelCall(const CpuModel &cpu, llvm::ArrayRef<MachineInstruction> body,
                 const KernelInfo &row, CallSize size);

} // namespace qwen

#endif // QWEN_COSTMODEL_CALLMODEL_H
