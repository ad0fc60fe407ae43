//===- Execution.cpp - Execution of a call of a function ------------------===//

#include "Execution.h"

#include "qwen/CostModel/CallModel.h"
#include "qwen/Support/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace qwen;

/// Address of the stack, far from all arguments.
static constexpr uint64_t kStack = uint64_t{1} << 60;

uint64_t qwen::truncate(uint64_t value, unsigned bits) {
  return value & llvm::maskTrailingOnes<uint64_t>(bits);
}

int64_t qwen::signExtend(uint64_t value, unsigned bits) {
  return llvm::SignExtend64(value, bits);
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

Processor::Processor(const CpuModel &cpu, llvm::StringRef classOfWords,
                     llvm::StringRef flagsName, llvm::StringRef stackName,
                     llvm::ArrayRef<llvm::StringRef> arguments)
    : instructions(cpu.instructionInfo()), registers(cpu.registerInfo()),
      // On x86 behind the return address.
      firstOnStack(kStack + (cpu.arch() == Arch::X86_64 ? 8 : 0)) {
  for (const llvm::MCRegisterClass &each : registers.regclasses())
    if (classOfWords == registers.getRegClassName(&each))
      for (const llvm::MCPhysReg reg : each)
        for (const llvm::MCPhysReg part : registers.subregs_inclusive(reg))
          whole[part] = reg;
  flagsRegister = findRegister(flagsName);
  for (const llvm::StringRef name : arguments)
    argumentRegisters.push_back(findRegister(name));
  set(findRegister(stackName), kStack);
}

llvm::MCRegister Processor::findRegister(llvm::StringRef name) const {
  for (unsigned reg = 1; reg < registers.getNumRegs(); ++reg)
    if (name == registers.getName(reg))
      return reg;
  throw Error("llvm has no register '" + name.str() + "'");
}

void Processor::setArguments(llvm::ArrayRef<uint64_t> arguments) {
  for (const auto &[reg, value] : llvm::zip(argumentRegisters, arguments))
    set(reg, value);
  uint64_t at = firstOnStack;
  for (size_t i = argumentRegisters.size(); i < arguments.size(); ++i, at += 8)
    stack[at] = arguments[i];
}

Word Processor::get(llvm::MCRegister part) const {
  const auto reg = whole.find(part.id());
  if (reg == whole.end())
    return std::nullopt;
  const auto word = words.find(reg->second);
  return word == words.end() ? Word() : Word(word->second);
}

void Processor::set(llvm::MCRegister part, Word value) {
  const auto reg = whole.find(part.id());
  if (reg == whole.end())
    return;
  if (value)
    words[reg->second] = *value;
  else
    words.erase(reg->second);
}

Word Processor::load(Word address, unsigned bits) const {
  if (!address)
    return std::nullopt;
  const auto found = stack.find(*address);
  return found == stack.end() ? Word() : Word(truncate(found->second, bits));
}

void Processor::store(Word address, Word value) {
  if (!address)
    return;
  if (value)
    stack[*address] = *value;
  else
    stack.erase(*address);
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Word Processor::add(Word a, Word b, bool carry, unsigned bits,
                    std::optional<ConditionFlags> &result) const {
  result.reset();
  if (!a || !b)
    return std::nullopt;
  const uint64_t x = truncate(*a, bits), y = truncate(*b, bits);
  const uint64_t sum = truncate(x + y + (carry ? 1 : 0), bits);
  const bool sign = signExtend(sum, bits) < 0;
  const bool xSign = signExtend(x, bits) < 0, ySign = signExtend(y, bits) < 0;
  result = {sign, sum == 0, carry ? sum <= x : sum < x,
            xSign == ySign && sign != xSign};
  return sum;
}

std::optional<ConditionFlags> Processor::logicFlags(Word value, unsigned bits) {
  if (!value)
    return std::nullopt;
  return ConditionFlags{signExtend(*value, bits) < 0,
                        truncate(*value, bits) == 0, false, false};
}

bool Processor::execute(const MachineInstruction &instruction) {
  const llvm::MCInstrDesc &description = describe(instruction.inst);
  if (description.isReturn() || description.isUnconditionalBranch())
    return true;
  if (description.isConditionalBranch())
    return branches(instruction.inst).value_or(false);
  executeStraight(instruction);
  return false;
}

void Processor::executeOther(const MachineInstruction &instruction) {
  const llvm::MCInst &inst = instruction.inst;
  const llvm::MCInstrDesc &description = describe(inst);
  const auto refuse = [&] {
    throw Error("the instruction '" + instruction.text +
                "' cannot be followed");
  };
  if (description.isCall() || description.isIndirectBranch())
    refuse();
  const auto isData = [&](llvm::MCRegister reg) {
    return reg == flagsRegister ? !flags : reg.isValid() && !get(reg);
  };
  bool data = description.mayLoad();
  for (unsigned i = description.getNumDefs(); i < inst.getNumOperands(); ++i)
    data |= inst.getOperand(i).isReg() && isData(inst.getOperand(i).getReg());
  for (const llvm::MCPhysReg used : description.implicit_uses())
    data |= isData(used);

  const auto write = [&](llvm::MCRegister reg) {
    if (reg != flagsRegister && !whole.contains(reg.id()))
      return;
    if (!data)
      refuse();
    if (reg == flagsRegister)
      flags.reset();
    else
      set(reg, std::nullopt);
  };
  for (unsigned i = 0; i < description.getNumDefs(); ++i)
    write(inst.getOperand(i).getReg());
  for (const llvm::MCPhysReg defined : description.implicit_defs())
    write(defined);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Trace qwen::executeCall(const CpuModel &cpu,
                        llvm::ArrayRef<MachineInstruction> body,
                        llvm::ArrayRef<uint64_t> arguments) {
  const std::unique_ptr<Processor> processor = cpu.arch() == Arch::X86_64
                                                   ? makeX86Processor(cpu)
                                                   : makeAArch64Processor(cpu);
  processor->setArguments(arguments);
  llvm::DenseMap<uint64_t, size_t> index;
  for (const auto &[i, instruction] : llvm::enumerate(body))
    index[instruction.address] = i;
  Trace trace;
  size_t at = 0;
  while (true) {
    if (at >= body.size())
      throw Error("its code is left without a return");
    const MachineInstruction &instruction = body[at];
    trace.push_back(&instruction);
    if (trace.size() > kLongestTrace)
      throw Error("its code does not end");
    const bool jumps = processor->execute(instruction);
    if (jumps && !instruction.target)
      return trace;
    if (!jumps) {
      ++at;
      continue;
    }
    const auto to = index.find(*instruction.target);
    if (to == index.end())
      throw Error("its code jumps elsewhere with '" + instruction.text + "'");
    at = to->second;
  }
}
