//===- CpuModel.h - LLVM's model of a processor -----------------*- C++ -*-===//
//
// Machine code of one function, and the cycles of its instructions from
// llvm-mca's library. No code runs, so any machine can model any architecture.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_COSTMODEL_CPUMODEL_H
#define QWEN_COSTMODEL_CPUMODEL_H

#include "qwen/ABI/CpuFeatures.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/MC/MCInst.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class MCInstrInfo;
class MCRegisterInfo;
} // namespace llvm

namespace qwen {

/// One instruction of a function.
struct MachineInstruction {
  llvm::MCInst inst;
  uint64_t address;
  /// LLVM's text, with single blanks and without prefixes that choose an
  /// encoding.
  std::string text;
  /// Target address of a jump.
  std::optional<uint64_t> target;
  /// Whether the following instruction may execute next.
  bool fallsThrough;

  /// The first word of the text.
  llvm::StringRef name() const {
    return llvm::StringRef(text).split(' ').first;
  }
};

/// Instructions in the order of execution.
using Trace = std::vector<const MachineInstruction *>;

/// Maximum number of instructions in a trace. A pass of the largest kernel has
/// 60,000, a call (the check of 151,936 logits on Arm) 170,000.
inline constexpr size_t kLongestTrace = 1'000'000;

/// LLVM's model of one CPU.
class CpuModel {
public:
  /// `cpu` is one of LLVM's names for `arch`. Throws Error if LLVM lacks the
  /// name or has no model of its pipeline.
  CpuModel(Arch arch, const std::string &cpu);
  ~CpuModel();

  Arch arch() const;
  /// Bits of a vector register; of a scalable one, its bits on this CPU. 128
  /// for x86, whose instructions name their size.
  int64_t vectorBits() const;
  /// LLVM's tables of the architecture.
  const llvm::MCInstrInfo &instructionInfo() const;

  /// The instructions of `code`, whose first byte has the given address. Throws
  /// Error if bytes are not an instruction.
  std::vector<MachineInstruction> disassemble(llvm::ArrayRef<uint8_t> code,
                                              uint64_t address) const;

  /// Cycles of one pass of a trace that is executed many times. Instructions
  /// wait only for their operands and pipes. Moves between registers take pipes
  /// too. Throws Error for an instruction without a schedule.
  double cycles(const Trace &trace) const;

  /// Lower bound on the cycles of the trace in any order, from the number of
  /// pipes and the dispatch width.
  double leastCycles(const Trace &trace) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace qwen

#endif // QWEN_COSTMODEL_CPUMODEL_H
