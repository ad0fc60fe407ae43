//===- CallModel.h - Cycles of a call of a kernel on a CPU ------*- C++ -*-===//

#ifndef QWEN_COSTMODEL_CALLMODEL_H
#define QWEN_COSTMODEL_CALLMODEL_H

#include "qwen/ABI/KernelTable.h"
#include "qwen/CostModel/KernelModel.h"

namespace qwen {

/// Sizes of a call: SizeRole::Length, SizeRole::Queries and SizeRole::Tokens.
struct CallSize {
  int64_t n;
  int64_t queries = 1;
  int64_t tokens = 1;

  auto operator<=>(const CallSize &) const = default;
};

/// Tokens of a modelled call of the gated delta rule for a prompt. With more, a
/// token takes as many cycles.
inline constexpr int64_t kModelledTokens = 8;

/// The instructions that a call executes, in order. `arguments` are its integer
/// arguments: the first are in registers, the others on the stack. A branch
/// that depends on data (values from memory or from vectors) is not taken.
/// Throws Error if the function calls another one, does not end, or computes an
/// integer with an unsupported instruction.
Trace executeCall(const CpuModel &cpu, llvm::ArrayRef<MachineInstruction> body,
                  llvm::ArrayRef<uint64_t> arguments);

/// Cycles of one of many calls of `kernel`, which is no product and has the
/// function `body`. executeCall gives the instructions for `size`; the
/// instructions that set the arguments count too. The model assumes that all
/// data is in the L1 cache and that quantizers see no block of zeros. Throws
/// Error like executeCall, and for products.
double modelCall(const CpuModel &cpu, llvm::ArrayRef<MachineInstruction> body,
                 const KernelInfo &kernel, CallSize size);

/// A call of `kernel`, of the gated delta rule, for kModelledTokens tokens and
/// a key of `keyDim` values. The peak is that of its multiplications, loads and
/// stores alone.
KernelRate modelDeltaRule(const CpuModel &cpu,
                          llvm::ArrayRef<MachineInstruction> body,
                          const KernelInfo &kernel, int64_t keyDim);

} // namespace qwen

#endif // QWEN_COSTMODEL_CALLMODEL_H
