//===- CallModel.h - Cycles of a call of a kernel on a CPU ------*- C++ -*-===//

#ifndef QWEN_COSTMODEL_CALLMODEL_H
#define QWEN_COSTMODEL_CALLMODEL_H

#include "qwen/CostModel/KernelModel.h"

namespace qwen {

/// Tokens of a modelled call of a kernel that takes the tokens of a sequence.
/// With more, a token takes as many cycles.
inline constexpr int64_t kModelledTokens = 8;

/// Cycles of one of many calls of a function. Each of its loops has as many
/// passes as `passes` says, in the order of their heads, whenever it is
/// entered. A branch on data goes to the next instruction. The instructions
/// that set the arguments count too. All data is in the L1 cache. Throws Error
/// if the function has another number of loops.
double modelCall(const CpuModel &cpu, llvm::ArrayRef<MachineInstruction> body,
                 llvm::ArrayRef<int64_t> passes);

/// A call of the gated delta rule for kModelledTokens tokens and a key of
/// `keyDim` values, like modelCall. The peak counts its multiplications, loads
/// and stores alone.
KernelRate modelDeltaRule(const CpuModel &cpu,
                          llvm::ArrayRef<MachineInstruction> body,
                          llvm::ArrayRef<int64_t> passes, int64_t keyDim);

} // namespace qwen

#endif // QWEN_COSTMODEL_CALLMODEL_H
