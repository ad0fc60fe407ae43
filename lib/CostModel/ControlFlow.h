//===- ControlFlow.h - Loops of a function ----------------------*- C++ -*-===//

#ifndef QWEN_LIB_COSTMODEL_CONTROLFLOW_H
#define QWEN_LIB_COSTMODEL_CONTROLFLOW_H

#include "qwen/CostModel/CpuModel.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SmallVector.h"

#include <map>

namespace qwen {

/// The control flow of a function. Loops are natural loops. Their name is their
/// head, the index of the first instruction.
class ControlFlow {
public:
  /// `body` must outlive this object. Throws Error if it is larger than any
  /// kernel.
  explicit ControlFlow(llvm::ArrayRef<MachineInstruction> body);

  llvm::ArrayRef<MachineInstruction> body() const { return instructions; }
  /// The instructions of each loop, by its head.
  const std::map<size_t, llvm::BitVector> &loops() const { return inside; }
  bool contains(size_t loop, size_t instruction) const {
    return inside.at(loop).test(instruction);
  }
  /// Whether `inner` is nested in `outer`.
  bool isNested(size_t inner, size_t outer) const;
  /// The loops around a loop, the innermost first.
  std::vector<size_t> around(size_t loop) const;

  /// Walks through one pass of the loop `outer`, or without one through a call
  /// of the function. A loop in it runs as often as `counts` says, or once if
  /// it is not there. Any other branch goes towards a loop of `counts`, else to
  /// the next instruction. Throws Error if the walk does not end.
  Trace execute(std::optional<size_t> outer,
                const std::map<size_t, int64_t> &counts) const;

private:
  class Walk;

  llvm::BitVector reachable(size_t from, const llvm::BitVector &without) const;

  llvm::ArrayRef<MachineInstruction> instructions;
  std::vector<llvm::SmallVector<size_t, 2>> successors;
  std::map<size_t, llvm::BitVector> inside;
};

} // namespace qwen

#endif // QWEN_LIB_COSTMODEL_CONTROLFLOW_H
