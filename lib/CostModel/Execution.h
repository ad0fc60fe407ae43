//===- Execution.h - What a call of a function executes ---------*- C++ -*-===//
//
// Where a kernel's loops turn and end follows from its arguments: pointers and
// sizes. Their whole numbers are computed as a processor does; data, which is
// whatever comes from memory or from vectors, is not.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_COSTMODEL_EXECUTION_H
#define QWEN_LIB_COSTMODEL_EXECUTION_H

#include "qwen/CostModel/CpuModel.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"

#include <map>
#include <memory>

namespace qwen {

/// A whole number; none where it comes from data.
using Word = std::optional<uint64_t>;

/// Flags of a comparison. Carry is what an addition carries; of subtractions,
/// what that of the complement does (as on Arm).
struct ConditionFlags {
  bool negative;
  bool zero;
  bool carry;
  bool overflow;
};

/// The lowest bits of a number; the others are zeros.
uint64_t truncate(uint64_t value, unsigned bits);
/// The number that the lowest bits are in two's complement.
int64_t signExtend(uint64_t value, unsigned bits);

/// The registers, flags and stack of a processor while it runs a function. What
/// an instruction does is up to the architecture's.
class Processor {
public:
  virtual ~Processor() = default;

  /// Gives the first registers for whole numbers of a call these values.
  void setArguments(llvm::ArrayRef<uint64_t> arguments);

  /// Executes an instruction and returns whether it jumps to its target.
  /// Branches on data do not. Throws Error for an instruction that computes a
  /// whole number in a way that is not known.
  bool execute(const MachineInstruction &instruction);

protected:
  /// Whether a conditional branch jumps; none where data decides.
  virtual std::optional<bool> branches(const llvm::MCInst &inst) const = 0;
  /// Executes an instruction that is no jump.
  virtual void executeStraight(const MachineInstruction &instruction) = 0;

  /// `classOfWords` is LLVM's name for the registers for whole numbers, of
  /// which `arguments` are those of a call and `stack` points to the stack.
  Processor(const CpuModel &cpu, llvm::StringRef classOfWords,
            llvm::StringRef flags, llvm::StringRef stack,
            llvm::ArrayRef<llvm::StringRef> arguments);

  llvm::StringRef opcodeOf(const llvm::MCInst &inst) const {
    return instructions.getName(inst.getOpcode());
  }
  const llvm::MCInstrDesc &describe(const llvm::MCInst &inst) const {
    return instructions.get(inst.getOpcode());
  }
  llvm::MCRegister findRegister(llvm::StringRef name) const;

  /// All bits of the register that `part` is a part of, or none.
  Word get(llvm::MCRegister part) const;
  /// Sets all bits of the register that `part` is a part of.
  void set(llvm::MCRegister part, Word value);

  /// What the stack holds at an address.
  Word load(Word address, unsigned bits) const;
  void store(Word address, Word value);

  /// a + b + carry in so many bits, and its flags.
  Word add(Word a, Word b, bool carry, unsigned bits,
           std::optional<ConditionFlags> &result) const;
  /// Flags of a number as a result of logic.
  static std::optional<ConditionFlags> logicFlags(Word value, unsigned bits);

  /// Executes an instruction that is not interpreted: what it writes is data if
  /// anything that it reads is.
  void executeOther(const MachineInstruction &instruction);

  std::optional<ConditionFlags> flags;

private:
  const llvm::MCInstrInfo &instructions;
  const llvm::MCRegisterInfo &registers;
  /// Of each register for whole numbers and each part of one, the whole.
  llvm::DenseMap<unsigned, unsigned> whole;
  llvm::MCRegister flagsRegister;
  std::vector<llvm::MCRegister> argumentRegisters;
  llvm::DenseMap<unsigned, uint64_t> words;
  std::map<uint64_t, uint64_t> stack;
};

std::unique_ptr<Processor> makeX86Processor(const CpuModel &cpu);
std::unique_ptr<Processor> makeAArch64Processor(const CpuModel &cpu);

} // namespace qwen

#endif // QWEN_LIB_COSTMODEL_EXECUTION_H
