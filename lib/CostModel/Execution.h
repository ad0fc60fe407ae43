//===- Execution.h - Execution of a call of a function ----------*- C++ -*-===//
//
// The control flow of a kernel follows from its arguments: pointers and sizes.
// The interpreter computes these integers like a processor. It does not compute
// data: values from memory or from vectors.
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

/// An integer; none if it depends on data.
using Word = std::optional<uint64_t>;

/// Flags of a comparison. Carry of a subtraction is that of the addition of the
/// complement, as on Arm.
struct ConditionFlags {
  bool negative;
  bool zero;
  bool carry;
  bool overflow;
};

/// The lowest bits of an integer; the others become zeros.
uint64_t truncate(uint64_t value, unsigned bits);
/// The integer that the lowest bits represent in two's complement.
int64_t signExtend(uint64_t value, unsigned bits);

/// The registers, flags and stack of a processor while it runs a function.
/// Subclasses execute the instructions of an architecture.
class Processor {
public:
  virtual ~Processor() = default;

  /// Sets the integer arguments: the first in registers, the others on the
  /// stack.
  void setArguments(llvm::ArrayRef<uint64_t> arguments);

  /// Executes an instruction and returns whether it jumps to its target.
  /// Branches on data do not jump. Throws Error if an unsupported instruction
  /// computes an integer.
  bool execute(const MachineInstruction &instruction);

protected:
  /// Whether a conditional branch jumps; none if it depends on data.
  virtual std::optional<bool> branches(const llvm::MCInst &inst) const = 0;
  /// Executes an instruction that is not a jump.
  virtual void executeStraight(const MachineInstruction &instruction) = 0;

  /// `classOfWords` is LLVM's name of the class of integer registers. Of these,
  /// `arguments` hold the arguments of a call and `stack` is the stack pointer.
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

  /// All bits of the register that contains `part`, or none.
  Word get(llvm::MCRegister part) const;
  /// Sets all bits of the register that contains `part`.
  void set(llvm::MCRegister part, Word value);

  /// The value at an address of the stack.
  Word load(Word address, unsigned bits) const;
  void store(Word address, Word value);

  /// a + b + carry in `bits` bits, and its flags in `result`.
  Word add(Word a, Word b, bool carry, unsigned bits,
           std::optional<ConditionFlags> &result) const;
  /// Flags of the result of a logical instruction.
  static std::optional<ConditionFlags> logicFlags(Word value, unsigned bits);

  /// Executes an instruction that is not interpreted. Its results are data if
  /// one of its operands is.
  void executeOther(const MachineInstruction &instruction);

  std::optional<ConditionFlags> flags;

private:
  const llvm::MCInstrInfo &instructions;
  const llvm::MCRegisterInfo &registers;
  /// The whole register of each integer register and of each part of one.
  llvm::DenseMap<unsigned, unsigned> whole;
  llvm::MCRegister flagsRegister;
  std::vector<llvm::MCRegister> argumentRegisters;
  /// Address of the first argument that has no register.
  uint64_t firstOnStack;
  llvm::DenseMap<unsigned, uint64_t> words;
  std::map<uint64_t, uint64_t> stack;
};

std::unique_ptr<Processor> makeX86Processor(const CpuModel &cpu);
std::unique_ptr<Processor> makeAArch64Processor(const CpuModel &cpu);

} // namespace qwen

#endif // QWEN_LIB_COSTMODEL_EXECUTION_H
