//===- ExecutionX86.cpp - Integer instructions of x86-64 ------------------===//

#include "Execution.h"

#include "qwen/Support/Error.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace qwen;

namespace {
/// LLVM's opcodes are names with a size and a form: "ADD64rr".
struct X86Opcode {
  explicit X86Opcode(llvm::StringRef text)
      : name(text.take_until(llvm::isDigit)) {
    llvm::StringRef rest = text.drop_front(name.size());
    if (rest.consumeInteger(10, bits))
      bits = 64;
    form = rest;
  }
  /// Whether the accumulator is the first source and the result: "ADD64i32".
  bool isShort() const { return form.starts_with("i"); }
  /// Source bits of MOVSX and MOVZX: the number at the end of the name.
  unsigned sourceBits() const {
    unsigned result = 0;
    form.drop_until(llvm::isDigit).consumeInteger(10, result);
    return result;
  }

  llvm::StringRef name;
  unsigned bits = 0;
  llvm::StringRef form;
};

class X86Processor : public Processor {
public:
  explicit X86Processor(const CpuModel &cpu)
      : Processor(cpu, "GR64", "EFLAGS", "RSP",
                  {"RDI", "RSI", "RDX", "RCX", "R8", "R9"}),
        stackPointer(findRegister("RSP")), accumulator(findRegister("RAX")),
        count(findRegister("RCX")) {}

private:
  std::optional<bool> branches(const llvm::MCInst &inst) const override {
    return holds(inst.getOperand(1).getImm());
  }
  void executeStraight(const MachineInstruction &instruction) override;
  Word addressAt(const llvm::MCInst &inst, unsigned operand) const;
  std::vector<Word> sourcesOf(const llvm::MCInst &inst, unsigned bits) const;
  bool isMemory(const llvm::MCInst &inst, unsigned operand) const;
  /// Whether a condition holds; the number is its encoding in machine code.
  std::optional<bool> holds(int64_t condition) const;
  /// Writes a register; small parts keep the other bits.
  void write(llvm::MCRegister to, Word value, unsigned bits);
  bool compute(const llvm::MCInst &inst, const X86Opcode &opcode);
  Word shift(const X86Opcode &opcode, Word value, Word by);

  const llvm::MCRegister stackPointer, accumulator, count;
};
} // namespace

/// Operands of an address: base, scale, index, displacement, segment.
static constexpr unsigned kAddressOperands = 5;

bool X86Processor::isMemory(const llvm::MCInst &inst, unsigned operand) const {
  const auto operands = describe(inst).operands();
  return operand < operands.size() &&
         operands[operand].OperandType == llvm::MCOI::OPERAND_MEMORY;
}

Word X86Processor::addressAt(const llvm::MCInst &inst, unsigned operand) const {
  uint64_t address = inst.getOperand(operand + 3).getImm();
  const uint64_t scale = inst.getOperand(operand + 1).getImm();
  for (const auto &[part, factor] :
       {std::pair(operand, uint64_t{1}), std::pair(operand + 2, scale)}) {
    const llvm::MCRegister reg = inst.getOperand(part).getReg();
    if (!reg.isValid())
      continue;
    const Word value = get(reg);
    if (!value)
      return std::nullopt;
    address += *value * factor;
  }
  return address;
}

std::vector<Word> X86Processor::sourcesOf(const llvm::MCInst &inst,
                                          unsigned bits) const {
  std::vector<Word> sources;
  for (unsigned i = describe(inst).getNumDefs(); i < inst.getNumOperands();) {
    if (isMemory(inst, i)) {
      sources.push_back(load(addressAt(inst, i), bits));
      i += kAddressOperands;
      continue;
    }
    const llvm::MCOperand &operand = inst.getOperand(i++);
    sources.push_back(operand.isReg()   ? get(operand.getReg())
                      : operand.isImm() ? Word(operand.getImm())
                                        : Word());
  }
  return sources;
}

std::optional<bool> X86Processor::holds(int64_t condition) const {
  if (!flags)
    return std::nullopt;
  const auto [negative, zero, carry, overflow] = *flags;
  bool result = false;
  switch (condition / 2) {
  case 0:
    result = overflow;
    break;
  case 1:
    result = carry;
    break;
  case 2:
    result = zero;
    break;
  case 3:
    result = carry || zero;
    break;
  case 4:
    result = negative;
    break;
  case 6:
    result = negative != overflow;
    break;
  case 7:
    result = zero || negative != overflow;
    break;
  default:
    throw Error("a branch on parity cannot be followed");
  }
  return result != (condition % 2 != 0);
}

void X86Processor::write(llvm::MCRegister to, Word value, unsigned bits) {
  if (value) {
    value = truncate(*value, bits);
    if (bits < 32)
      *value |= get(to).value_or(0) & ~truncate(~uint64_t{0}, bits);
  }
  set(to, value);
}

Word X86Processor::shift(const X86Opcode &opcode, Word value, Word by) {
  flags.reset();
  if (!value || !by)
    return std::nullopt;
  const unsigned amount = *by % (opcode.bits == 64 ? 64 : 32);
  const uint64_t from = truncate(*value, opcode.bits);
  const uint64_t result =
      opcode.name.starts_with("SAR")
          ? uint64_t(signExtend(from, opcode.bits) >> amount)
      : opcode.name.starts_with("SHR") ? from >> amount
                                       : from << amount;
  flags = logicFlags(result, opcode.bits);
  return result;
}

/// Executes an instruction that writes a register or flags. Returns false if it
/// is not supported.
bool X86Processor::compute(const llvm::MCInst &inst, const X86Opcode &opcode) {
  const unsigned bits = opcode.bits;
  std::vector<Word> sources = sourcesOf(inst, bits);
  if (opcode.isShort())
    sources.insert(sources.begin(), get(accumulator));
  const Word a = sources.empty() ? Word() : sources[0];
  const Word b = sources.size() < 2 ? Word() : sources[1];
  const auto negated = [](Word word) { return word ? Word(~*word) : word; };
  const auto bitwise = [&](auto combine) {
    const Word result = a && b ? Word(combine(*a, *b)) : Word();
    flags = logicFlags(result, bits);
    return result;
  };
  const auto subtract = [&](Word from, Word what) {
    const Word result = add(from, negated(what), true, bits, flags);
    // The carry of x86 is the borrow.
    if (flags)
      flags->carry = !flags->carry;
    return result;
  };
  const auto step = [&](uint64_t by) {
    const bool carry = flags && flags->carry;
    const Word result = add(a, by, false, bits, flags);
    if (flags)
      flags->carry = carry;
    return result;
  };
  // x ^ x is 0 even if x is data.
  const bool same = inst.getNumOperands() == 3 && inst.getOperand(1).isReg() &&
                    inst.getOperand(2).isReg() &&
                    inst.getOperand(1).getReg() == inst.getOperand(2).getReg();

  const llvm::StringRef name = opcode.name;
  if (name == "CMP" || name == "TEST") {
    name == "CMP" ? subtract(a, b) : bitwise(std::bit_and());
    return true;
  }
  if (!opcode.isShort() && (inst.getNumOperands() == 0 ||
                            !inst.getOperand(0).isReg() || isMemory(inst, 0)))
    return false;
  const llvm::MCRegister to =
      opcode.isShort() ? accumulator : inst.getOperand(0).getReg();
  if (name == "MOV") {
    write(to, a, bits);
  } else if (name == "MOVZX") {
    write(to, a ? Word(truncate(*a, opcode.sourceBits())) : a, bits);
  } else if (name == "MOVSX") {
    write(to, a ? Word(signExtend(*a, opcode.sourceBits())) : a, bits);
  } else if (name == "LEA") {
    write(to, addressAt(inst, 1), opcode.form == "_32r" ? 32 : bits);
  } else if (name == "ADD") {
    write(to, add(a, b, false, bits, flags), bits);
  } else if (name == "SUB") {
    write(to, same ? subtract(0, 0) : subtract(a, b), bits);
  } else if (name == "INC") {
    write(to, step(1), bits);
  } else if (name == "DEC") {
    write(to, step(~uint64_t{0}), bits);
  } else if (name == "NEG") {
    write(to, subtract(0, a), bits);
  } else if (name == "NOT") {
    write(to, negated(a), bits);
  } else if (name == "AND") {
    write(to, bitwise(std::bit_and()), bits);
  } else if (name == "OR") {
    write(to, bitwise(std::bit_or()), bits);
  } else if (name == "XOR" && same) {
    flags = logicFlags(0, bits);
    write(to, 0, bits);
  } else if (name == "XOR") {
    write(to, bitwise(std::bit_xor()), bits);
  } else if (name == "IMUL" && sources.size() == 2) {
    flags.reset();
    write(to, a && b ? Word(*a * *b) : Word(), bits);
  } else if (name == "SHL" || name == "SHR" || name == "SAR") {
    const Word one = opcode.form == "r1" ? Word(1) : get(count);
    write(to, shift(opcode, a, sources.size() < 2 ? one : b), bits);
  } else if (name == "CMOV") {
    const std::optional<bool> condition = holds(*sources[2]);
    write(to, condition ? (*condition ? b : a) : Word(), bits);
  } else {
    return false;
  }
  return true;
}

void X86Processor::executeStraight(const MachineInstruction &instruction) {
  const llvm::MCInst &inst = instruction.inst;
  const llvm::StringRef text = opcodeOf(inst);
  const X86Opcode opcode(text);
  if (text == "SETCCr") {
    const std::optional<bool> condition = holds(inst.getOperand(1).getImm());
    write(inst.getOperand(0).getReg(), condition ? Word(*condition) : Word(),
          8);
  } else if (text == "PUSH64r") {
    const Word pointer = get(stackPointer);
    set(stackPointer, pointer ? Word(*pointer - 8) : pointer);
    store(get(stackPointer), get(inst.getOperand(0).getReg()));
  } else if (text == "POP64r") {
    const Word pointer = get(stackPointer);
    set(inst.getOperand(0).getReg(), load(pointer, 64));
    set(stackPointer, pointer ? Word(*pointer + 8) : pointer);
  } else if (opcode.name == "MOV" && isMemory(inst, 0)) {
    store(addressAt(inst, 0), sourcesOf(inst, opcode.bits).back());
  } else if (!compute(inst, opcode)) {
    executeOther(instruction);
  }
}

std::unique_ptr<Processor> qwen::makeX86Processor(const CpuModel &cpu) {
  return std::make_unique<X86Processor>(cpu);
}
