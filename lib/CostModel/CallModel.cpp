//===- CallModel.cpp - What a call of a kernel takes on a CPU -------------===//

#include "qwen/CostModel/CallModel.h"

#include "ControlFlow.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/MC/MCInstrInfo.h"

using namespace qwen;

/// Whether an instruction multiplies floats, loads or stores.
static bool isBound(const CpuModel &cpu,
                    const MachineInstruction &instruction) {
  const llvm::MCInstrDesc &description =
      cpu.instructionInfo().get(instruction.inst.getOpcode());
  const llvm::StringRef name = instruction.name();
  return description.mayLoad() || description.mayStore() ||
         name.starts_with("fmul") || name.starts_with("fmla") ||
         name.starts_with("vmulps") || name.starts_with("vfmadd");
}

/// What sets the registers for arguments, so that a call does not wait for the
/// one before it.
static std::vector<MachineInstruction> callerOf(const CpuModel &cpu) {
  // movl $0 to edi, esi, edx, ecx, r8d, r9d; vxorps of xmm0 .. xmm3.
  static constexpr uint8_t kX86[] = {
      0xbf, 0,    0,    0,    0,    0xbe, 0,    0,    0,    0,    0xba, 0,
      0,    0,    0,    0xb9, 0,    0,    0,    0,    0x41, 0xb8, 0,    0,
      0,    0,    0x41, 0xb9, 0,    0,    0,    0,    0xc5, 0xf8, 0x57, 0xc0,
      0xc5, 0xf0, 0x57, 0xc9, 0xc5, 0xe8, 0x57, 0xd2, 0xc5, 0xe0, 0x57, 0xdb};
  if (cpu.arch() == Arch::X86_64)
    return cpu.disassemble(kX86, 0);
  // mov x0 .. x5, #0; movi d0 .. d3, #0.
  std::vector<uint8_t> code;
  const auto append = [&](uint32_t word) {
    for (int byte = 0; byte < 4; ++byte)
      code.push_back(static_cast<uint8_t>(word >> (8 * byte)));
  };
  for (uint32_t reg = 0; reg < 6; ++reg)
    append(0xd2800000 | reg);
  for (uint32_t reg = 0; reg < 4; ++reg)
    append(0x2f00e400 | reg);
  return cpu.disassemble(code, 0);
}

/// The instructions of a call, without the return, which LLVM's library does
/// not take.
static Trace traceOf(llvm::ArrayRef<MachineInstruction> body,
                     llvm::ArrayRef<int64_t> passes) {
  const ControlFlow flow(body);
  if (flow.loops().size() != passes.size())
    throw Error("its code has " + std::to_string(flow.loops().size()) +
                " loops when " + std::to_string(passes.size()) +
                " are expected");
  std::map<size_t, int64_t> counts;
  for (const auto &[loop, count] : llvm::zip_equal(flow.loops(), passes))
    counts[loop.first] = count;
  Trace trace = flow.execute(std::nullopt, counts);
  trace.pop_back();
  return trace;
}

double qwen::modelCall(const CpuModel &cpu,
                       llvm::ArrayRef<MachineInstruction> body,
                       llvm::ArrayRef<int64_t> passes) {
  const std::vector<MachineInstruction> caller = callerOf(cpu);
  Trace trace;
  for (const MachineInstruction &instruction : caller)
    trace.push_back(&instruction);
  llvm::append_range(trace, traceOf(body, passes));
  return cpu.cycles(trace);
}

KernelRate qwen::modelDeltaRule(const CpuModel &cpu,
                                llvm::ArrayRef<MachineInstruction> body,
                                llvm::ArrayRef<int64_t> passes,
                                int64_t keyDim) {
  Trace bound;
  for (const MachineInstruction *instruction : traceOf(body, passes))
    if (isBound(cpu, *instruction))
      bound.push_back(instruction);
  const int64_t macs = 4 * kDeltaColumns * keyDim * kModelledTokens;
  return {macs, modelCall(cpu, body, passes),
          double(macs) / cpu.leastCycles(bound)};
}
