//===- ExecutionAArch64.cpp - Integer instructions of AArch64 -------------===//

#include "Execution.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

using namespace qwen;

namespace {
/// LLVM's opcodes are names with a size and a form: "ADDXri".
struct Opcode {
  explicit Opcode(llvm::StringRef text) : name(text) {
    for (const llvm::StringRef each :
         {"rx64", "rrr", "rri", "ri", "rs", "rx", "r", "i"})
      if (name.consume_back(each)) {
        form = each;
        break;
      }
    if (!name.consume_back("X") && name.consume_back("W"))
      bits = 32;
  }

  llvm::StringRef name;
  unsigned bits = 64;
  llvm::StringRef form;
};

class AArch64Processor : public Processor {
public:
  explicit AArch64Processor(const CpuModel &cpu)
      : Processor(cpu, "GPR64all", "NZCV", "SP",
                  {"X0", "X1", "X2", "X3", "X4", "X5", "X6", "X7"}),
        zero64(findRegister("XZR")), zero32(findRegister("WZR")) {}

private:
  std::optional<bool> branches(const llvm::MCInst &inst) const override;
  void executeStraight(const MachineInstruction &instruction) override;
  Word read(const llvm::MCInst &inst, unsigned operand) const;
  Word secondSource(const llvm::MCInst &inst, const Opcode &opcode,
                    bool isLogic) const;
  void write(const llvm::MCInst &inst, Word value, unsigned bits);
  /// Whether a condition holds; the number is its encoding in machine code.
  std::optional<bool> holds(int64_t condition) const;
  bool compute(const llvm::MCInst &inst, const Opcode &opcode);
  bool select(const llvm::MCInst &inst, const Opcode &opcode);
  bool moveBits(const llvm::MCInst &inst, const Opcode &opcode);
  bool accessStack(const MachineInstruction &instruction);
  void stepBase(const MachineInstruction &instruction, Word base);

  const llvm::MCRegister zero64, zero32;
};
} // namespace

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

/// The mask that the 13 bits N:immr:imms of a logical instruction encode.
static uint64_t logicalMask(uint64_t encoded, unsigned bits) {
  const unsigned rotation = (encoded >> 6) & 63;
  const unsigned sizes = ((encoded >> 12) << 6) | (~encoded & 63);
  const unsigned size = llvm::bit_floor(sizes);
  const unsigned ones = (encoded & (size - 1)) + 1;
  const uint64_t pattern = llvm::maskTrailingOnes<uint64_t>(ones);
  const unsigned turn = rotation & (size - 1);
  const uint64_t element =
      truncate((pattern >> turn) | (turn ? pattern << (size - turn) : 0), size);
  uint64_t mask = 0;
  for (unsigned at = 0; at < bits; at += size)
    mask |= element << at;
  return mask;
}

Word AArch64Processor::read(const llvm::MCInst &inst, unsigned operand) const {
  const llvm::MCOperand &from = inst.getOperand(operand);
  if (from.isImm())
    return from.getImm();
  if (from.getReg() == zero64 || from.getReg() == zero32)
    return 0;
  return get(from.getReg());
}

/// The last source of an instruction, shifted.
Word AArch64Processor::secondSource(const llvm::MCInst &inst,
                                    const Opcode &opcode, bool isLogic) const {
  const Word value = read(inst, 2);
  if (!value)
    return value;
  if (opcode.form == "ri" && isLogic)
    return logicalMask(*value, opcode.bits);
  const uint64_t encoded = inst.getOperand(3).getImm();
  if (opcode.form == "ri")
    return *value << (encoded & 63);
  if (opcode.form == "rs") {
    const unsigned amount = encoded & 63;
    const uint64_t from = truncate(*value, opcode.bits);
    switch (encoded >> 6) {
    case 0:
      return from << amount;
    case 1:
      return from >> amount;
    case 2:
      return signExtend(from, opcode.bits) >> amount;
    default:
      return std::nullopt;
    }
  }
  // Extended: a part, with or without its sign.
  const unsigned part = 8U << ((encoded >> 3) & 3);
  const bool isSigned = (encoded & 32) != 0;
  return (isSigned ? uint64_t(signExtend(*value, part))
                   : truncate(*value, part))
         << (encoded & 7);
}

void AArch64Processor::write(const llvm::MCInst &inst, Word value,
                             unsigned bits) {
  const llvm::MCRegister to = inst.getOperand(0).getReg();
  if (to != zero64 && to != zero32)
    set(to, value ? Word(truncate(*value, bits)) : value);
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

std::optional<bool> AArch64Processor::holds(int64_t condition) const {
  if (condition >= 14)
    return true;
  if (!flags)
    return std::nullopt;
  const auto [negative, zero, carry, overflow] = *flags;
  const bool greaterEqual = negative == overflow;
  const bool results[] = {zero,
                          carry,
                          negative,
                          overflow,
                          carry && !zero,
                          greaterEqual,
                          greaterEqual && !zero};
  return results[condition / 2] != (condition % 2 != 0);
}

std::optional<bool> AArch64Processor::branches(const llvm::MCInst &inst) const {
  const llvm::StringRef name = opcodeOf(inst);
  if (name == "Bcc")
    return holds(inst.getOperand(0).getImm());
  const Word value = read(inst, 0);
  if (!value)
    return std::nullopt;
  const bool wanted = name.starts_with("CBNZ") || name.starts_with("TBNZ");
  if (name.starts_with("CB"))
    return (truncate(*value, name.ends_with("W") ? 32 : 64) != 0) == wanted;
  return ((*value >> inst.getOperand(1).getImm()) & 1) == (wanted ? 1 : 0);
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

/// Conditional selections.
bool AArch64Processor::select(const llvm::MCInst &inst, const Opcode &opcode) {
  const llvm::StringRef name = opcode.name;
  if (name != "CSEL" && name != "CSINC" && name != "CSINV" && name != "CSNEG")
    return false;
  const std::optional<bool> condition = holds(inst.getOperand(3).getImm());
  Word other = read(inst, 2);
  if (other && name == "CSINC")
    other = *other + 1;
  else if (other && name == "CSINV")
    other = ~*other;
  else if (other && name == "CSNEG")
    other = -*other;
  write(inst, condition ? (*condition ? read(inst, 1) : other) : Word(),
        opcode.bits);
  return true;
}

/// Shifts by constants and other moves of bit fields.
bool AArch64Processor::moveBits(const llvm::MCInst &inst,
                                const Opcode &opcode) {
  const llvm::StringRef name = opcode.name;
  if (name != "UBFM" && name != "SBFM" && name != "BFM")
    return false;
  const unsigned first = name == "BFM" ? 2 : 1;
  const Word from = read(inst, first);
  const unsigned right = inst.getOperand(first + 1).getImm();
  const unsigned last = inst.getOperand(first + 2).getImm();
  // Moves a field of `size` bits down to bit 0, or up from it.
  const bool goesDown = last >= right;
  const unsigned size = goesDown ? last - right + 1 : last + 1;
  const unsigned left = goesDown ? 0 : opcode.bits - right;
  Word result;
  if (from) {
    const uint64_t field = truncate(goesDown ? *from >> right : *from, size);
    if (name == "UBFM")
      result = field << left;
    else if (name == "SBFM")
      result = uint64_t(signExtend(field, size)) << left;
    else if (const Word old = read(inst, 1))
      result = (*old & ~(llvm::maskTrailingOnes<uint64_t>(size) << left)) |
               field << left;
  }
  write(inst, result, opcode.bits);
  return true;
}

bool AArch64Processor::compute(const llvm::MCInst &inst, const Opcode &opcode) {
  const unsigned bits = opcode.bits;
  llvm::StringRef name = opcode.name;
  if (name == "MOVZ" || name == "MOVN") {
    const uint64_t value = inst.getOperand(1).getImm()
                           << inst.getOperand(2).getImm();
    write(inst, name == "MOVN" ? ~value : value, bits);
    return true;
  }
  if (name == "MOVK") {
    const Word old = read(inst, 1);
    const unsigned shift = inst.getOperand(3).getImm();
    const uint64_t part = inst.getOperand(2).getImm();
    write(inst,
          old ? Word((*old & ~(uint64_t{0xFFFF} << shift)) | part << shift)
              : old,
          bits);
    return true;
  }
  if (name == "MADD" || name == "MSUB") {
    const Word a = read(inst, 1), b = read(inst, 2), c = read(inst, 3);
    Word result;
    if (a && b && c)
      result = name == "MADD" ? *c + *a * *b : *c - *a * *b;
    write(inst, result, bits);
    return true;
  }

  const bool setsFlags = name.consume_back("S");
  const bool subtracts = name == "SUB";
  if (subtracts || name == "ADD") {
    const Word a = read(inst, 1);
    Word b = secondSource(inst, opcode, /*isLogic=*/false);
    if (subtracts && b)
      b = ~*b;
    std::optional<ConditionFlags> result;
    write(inst, add(a, b, subtracts, bits, result), bits);
    if (setsFlags)
      flags = result;
    return true;
  }
  const bool complements = name == "BIC" || name == "ORN" || name == "EON";
  if (!complements && name != "AND" && name != "ORR" && name != "EOR")
    return false;
  const Word a = read(inst, 1);
  Word b = secondSource(inst, opcode, /*isLogic=*/true);
  if (complements && b)
    b = ~*b;
  Word result;
  if (a && b)
    result = name == "AND" || name == "BIC"   ? *a & *b
             : name == "ORR" || name == "ORN" ? *a | *b
                                              : *a ^ *b;
  write(inst, result, bits);
  if (setsFlags)
    flags = logicFlags(result, bits);
  return true;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The number after `mark` in an instruction's text: "#0x10".
static std::optional<int64_t> immediateAfter(llvm::StringRef text,
                                             llvm::StringRef mark) {
  const size_t at = text.find(mark);
  int64_t value = 0;
  if (at == llvm::StringRef::npos ||
      text.drop_front(at + mark.size()).consumeInteger(0, value))
    return std::nullopt;
  return value;
}

/// Updates the base register of an address with write-back: "[x1], #16", "[x1],
/// x2" or "[x1, #16]!".
void AArch64Processor::stepBase(const MachineInstruction &instruction,
                                Word base) {
  const llvm::MCInst &inst = instruction.inst;
  const llvm::StringRef text = instruction.text;
  Word by;
  if (text.ends_with("!"))
    by = immediateAfter(text, ", #");
  else if (const auto immediate = immediateAfter(text, "], #"))
    by = *immediate;
  else
    by = read(inst, inst.getNumOperands() - 1);
  set(inst.getOperand(0).getReg(), base && by ? Word(*base + *by) : Word());
}

/// Loads and stores of one integer or a pair, at a base plus a constant.
bool AArch64Processor::accessStack(const MachineInstruction &instruction) {
  const llvm::MCInst &inst = instruction.inst;
  llvm::StringRef name = opcodeOf(inst);
  if (!name.consume_back("ui") && !name.consume_back("i"))
    return false;
  const bool isLoad = name == "LDRX" || name == "LDRW" || name == "LDURX" ||
                      name == "LDURW" || name == "LDPX" || name == "LDPW";
  const bool isStore = name == "STRX" || name == "STRW" || name == "STURX" ||
                       name == "STURW" || name == "STPX" || name == "STPW";
  if (!isLoad && !isStore)
    return false;
  const unsigned count = name[2] == 'P' ? 2 : 1;
  const unsigned bits = name.ends_with("W") ? 32 : 64;
  Word address = read(inst, count);
  if (address)
    *address += immediateAfter(instruction.text, ", #").value_or(0);
  for (unsigned i = 0; i < count; ++i) {
    if (isLoad)
      set(inst.getOperand(i).getReg(), load(address, bits));
    else
      store(address, read(inst, i));
    if (address)
      *address += bits / 8;
  }
  return true;
}

void AArch64Processor::executeStraight(const MachineInstruction &instruction) {
  const llvm::MCInst &inst = instruction.inst;
  const llvm::StringRef text = opcodeOf(inst);
  const Opcode opcode(text);
  if (text.ends_with("pre") || text.ends_with("post") ||
      text.ends_with("_POST")) {
    const Word base = get(inst.getOperand(0).getReg());
    executeOther(instruction);
    stepBase(instruction, base);
  } else if (text == "ADRP" || text == "ADR") {
    // Constants are data.
    set(inst.getOperand(0).getReg(), std::nullopt);
  } else if (!accessStack(instruction) && !select(inst, opcode) &&
             !moveBits(inst, opcode) && !compute(inst, opcode)) {
    executeOther(instruction);
  }
}

std::unique_ptr<Processor> qwen::makeAArch64Processor(const CpuModel &cpu) {
  return std::make_unique<AArch64Processor>(cpu);
}
