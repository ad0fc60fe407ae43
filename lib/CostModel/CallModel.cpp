//===- CallModel.cpp - What a call of a kernel takes on a CPU -------------===//

#include "qwen/CostModel/CallModel.h"

#include "qwen/Support/Error.h"

#include "llvm/MC/MCInstrInfo.h"

using namespace qwen;

/// The value of a size in a call.
static uint64_t valueOf(SizeRole role, CallSize size) {
  switch (role) {
  case SizeRole::Length:
    return static_cast<uint64_t>(size.n);
  case SizeRole::Queries:
    return static_cast<uint64_t>(size.queries);
  case SizeRole::Tokens:
    return static_cast<uint64_t>(size.tokens);
  default:
    return 1;
  }
}

/// Arguments in the order of the signature, without floats, which have
/// registers of their own; pointers lead to different places.
template <typename Result, typename... Parameters>
static std::vector<uint64_t> argumentsOf(Result (*)(Parameters...),
                                         std::span<const SizeRole> sizes,
                                         CallSize size) {
  std::vector<uint64_t> arguments;
  uint64_t pointers = 0;
  size_t next = 0;
  const auto add = [&]<typename T>() {
    if constexpr (std::is_pointer_v<T>)
      arguments.push_back(++pointers << 40);
    else if constexpr (std::is_integral_v<T>)
      arguments.push_back(valueOf(sizes[next++], size));
  };
  (add.template operator()<Parameters>(), ...);
  return arguments;
}

static std::vector<uint64_t> argumentsOf(const KernelInfo &kernel,
                                         CallSize size) {
  if (kernel.provider() == KernelProvider::MLIR)
    throw Error("kernel '" + std::string(kernel.name) +
                "' is a product, which has no model of a call");
  return visitKernelOp(kernel.op, [&]<KernelOp Op>() {
    return argumentsOf(static_cast<KernelFn<Op> *>(nullptr), infoOf(Op).sizes,
                       size);
  });
}

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

double qwen::modelCall(const CpuModel &cpu,
                       llvm::ArrayRef<MachineInstruction> body,
                       const KernelInfo &kernel, CallSize size) {
  Trace call = executeCall(cpu, body, argumentsOf(kernel, size));
  // LLVM's library does not take returns.
  call.pop_back();
  const std::vector<MachineInstruction> caller = callerOf(cpu);
  Trace trace;
  for (const MachineInstruction &instruction : caller)
    trace.push_back(&instruction);
  trace.insert(trace.end(), call.begin(), call.end());
  return cpu.cycles(trace);
}

KernelRate qwen::modelDeltaRule(const CpuModel &cpu,
                                llvm::ArrayRef<MachineInstruction> body,
                                const KernelInfo &kernel, int64_t keyDim) {
  const CallSize size = {.n = keyDim, .tokens = kModelledTokens};
  Trace bound;
  for (const MachineInstruction *instruction :
       executeCall(cpu, body, argumentsOf(kernel, size)))
    if (isBound(cpu, *instruction))
      bound.push_back(instruction);
  const int64_t macs = 4 * kDeltaColumns * keyDim * size.tokens;
  return {macs, modelCall(cpu, body, kernel, size),
          double(macs) / cpu.leastCycles(bound)};
}
