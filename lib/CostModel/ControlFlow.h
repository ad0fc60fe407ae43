//===- ControlFlow.h - Loops of a function and what they execute -*- C++
//-*-===//

#ifndef QWEN_LIB_COSTMODEL_CONTROLFLOW_H
#define QWEN_LIB_COSTMODEL_CONTROLFLOW_H

#include "qwen/CostModel/CpuModel.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SmallVector.h"

#include <map>

namespace qwen {

/// The control flow of a function. Loops are natural ones and go by the index
/// of their first instruction, their head.
class ControlFlow {
public:
  /// `body` must live as long as this. Throws Error for more code than a kernel
  /// has.
  explicit ControlFlow(llvm::ArrayRef<MachineInstruction> body);

  llvm::ArrayRef<MachineInstruction> body() const { return instructions; }
  /// Of each loop, the instructions in it.
  const std::map<size_t, llvm::BitVector> &loops() const { return inside; }
  bool contains(size_t loop, size_t instruction) const {
    return inside.at(loop).test(instruction);
  }
  /// Whether a loop lies in another one.
  bool isNested(size_t inner, size_t outer) const;
  /// The loops around a loop, the innermost first.
  std::vector<size_t> around(size_t loop) const;

  /// One pass of the loop `outer` as it is executed where the loops in it run
  /// as often as `counts` says, else once. Where a branch leaves open which way
  /// is taken, one that leads to a loop of `counts` is, or the next
  /// instruction. Throws Error where that never comes back to the head.
  Trace execute(size_t outer, const std::map<size_t, int64_t> &counts) const;

private:
  class Walk;

  llvm::BitVector reachable(size_t from, const llvm::BitVector &without) const;

  llvm::ArrayRef<MachineInstruction> instructions;
  std::vector<llvm::SmallVector<size_t, 2>> successors;
  std::map<size_t, llvm::BitVector> inside;
};

} // namespace qwen

#endif // QWEN_LIB_COSTMODEL_CONTROLFLOW_H
