//===- CpuModel.cpp - LLVM's model of a processor -------------------------===//

#include "qwen/CostModel/CpuModel.h"

#include "qwen/Support/Error.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrAnalysis.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/MCA/Context.h"
#include "llvm/MCA/CustomBehaviour.h"
#include "llvm/MCA/InstrBuilder.h"
#include "llvm/MCA/Pipeline.h"
#include "llvm/MCA/SourceMgr.h"
#include "llvm/MCA/Support.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Triple.h"

#include <algorithm>
#include <mutex>

using namespace qwen;

/// Number of instructions in one simulation: enough passes to make the first
/// ones negligible.
static constexpr size_t kPricedInstructions = 20000;

/// llvm-mca's latency of a call; no loop here has calls.
static constexpr unsigned kCallLatency = 100;

//===----------------------------------------------------------------------===//
// LLVM's descriptions of a CPU
//===----------------------------------------------------------------------===//

struct CpuModel::Impl {
  Impl(Arch arch, const std::string &cpu);

  llvm::MCInst priced(const llvm::MCInst &inst) const;

  Arch arch;
  std::string cpu;
  llvm::Triple triple;
  std::unique_ptr<llvm::MCRegisterInfo> registers;
  std::unique_ptr<llvm::MCAsmInfo> assembly;
  std::unique_ptr<llvm::MCInstrInfo> instructions;
  std::unique_ptr<llvm::MCInstrAnalysis> analysis;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget;
  std::unique_ptr<llvm::MCContext> context;
  std::unique_ptr<llvm::MCDisassembler> disassembler;
  std::unique_ptr<llvm::MCInstPrinter> printer;
  /// Opcodes of conversions with a fraction, and of the same ones without.
  llvm::DenseMap<unsigned, unsigned> plainConversions;
};

static const llvm::Target &findTarget(const llvm::Triple &triple) {
  static std::once_flag initialised;
  std::call_once(initialised, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86Disassembler();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64Disassembler();
  });
  std::string message;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, message);
  if (!target)
    throw Error("llvm does not know " + triple.str() + ": " + message);
  return *target;
}

CpuModel::Impl::Impl(Arch arch, const std::string &cpu)
    : arch(arch), cpu(cpu),
      triple(arch == Arch::X86_64 ? "x86_64-unknown-linux-gnu"
                                  : "aarch64-unknown-linux-gnu") {
  const llvm::Target &target = findTarget(triple);
  registers.reset(target.createMCRegInfo(triple));
  const llvm::MCTargetOptions options;
  assembly.reset(target.createMCAsmInfo(*registers, triple, options));
  instructions.reset(target.createMCInstrInfo());
  analysis.reset(target.createMCInstrAnalysis(instructions.get()));
  // LLVM would print its own message about an unknown CPU.
  subtarget.reset(target.createMCSubtargetInfo(triple, "", ""));
  if (!subtarget->isCPUStringValid(cpu))
    throw Error("llvm does not know the cpu '" + cpu + "' of " +
                std::string(archName(arch)));
  // The disassembler must know all instructions that the code may have.
  subtarget.reset(target.createMCSubtargetInfo(
      triple, cpu, arch == Arch::AArch64 ? "+all" : ""));
  if (!subtarget->getSchedModel().hasInstrSchedModel())
    throw Error("llvm has no model of the pipeline of '" + cpu +
                "'; name a cpu that it models, such as " +
                (arch == Arch::X86_64 ? "znver4" : "neoverse-n2"));
  context = std::make_unique<llvm::MCContext>(triple, assembly.get(),
                                              registers.get(), subtarget.get());
  disassembler.reset(target.createMCDisassembler(*subtarget, *context));
  printer.reset(target.createMCInstPrinter(triple, 0, *assembly, *instructions,
                                           *registers));
  llvm::StringMap<unsigned> opcodes;
  for (unsigned i = 0; i < instructions->getNumOpcodes(); ++i)
    opcodes[instructions->getName(i)] = i;
  for (const auto &[fraction, plain] :
       {std::pair("SCVTFv4i32_shift", "SCVTFv4f32"),
        std::pair("SCVTFv2i32_shift", "SCVTFv2f32")})
    if (arch == Arch::AArch64)
      plainConversions[opcodes.at(fraction)] = opcodes.at(plain);
}

CpuModel::CpuModel(Arch arch, const std::string &cpu)
    : impl(std::make_unique<Impl>(arch, cpu)) {}

CpuModel::~CpuModel() = default;

Arch CpuModel::arch() const { return impl->arch; }

int64_t CpuModel::vectorBits() const {
  // The architecture does not fix the length; these cores have more.
  if (impl->cpu == "neoverse-v1" || impl->cpu == "neoverse-512tvb")
    return 256;
  return impl->cpu == "a64fx" ? 512 : 128;
}

const llvm::MCInstrInfo &CpuModel::instructionInfo() const {
  return *impl->instructions;
}

//===----------------------------------------------------------------------===//
// Bytes to instructions
//===----------------------------------------------------------------------===//

std::vector<MachineInstruction>
CpuModel::disassemble(llvm::ArrayRef<uint8_t> code, uint64_t address) const {
  std::vector<MachineInstruction> result;
  while (!code.empty()) {
    MachineInstruction &made = result.emplace_back();
    uint64_t size = 0;
    if (impl->disassembler->getInstruction(made.inst, size, code, address,
                                           llvm::nulls()) !=
            llvm::MCDisassembler::Success ||
        size == 0 || size > code.size())
      throw Error("no instruction of " + std::string(archName(impl->arch)) +
                  " at address 0x" + llvm::utohexstr(address, true));
    made.address = address;
    std::string text;
    llvm::raw_string_ostream stream(text);
    impl->printer->printInst(&made.inst, address, "", *impl->subtarget, stream);
    llvm::SmallVector<llvm::StringRef> words;
    llvm::StringRef(text).split(words, '\t', -1, false);
    if (!words.empty() && words.front().starts_with("{"))
      words.erase(words.begin());
    made.text = llvm::join(words, " ");
    uint64_t target = 0;
    if (impl->analysis->isBranch(made.inst) &&
        impl->analysis->evaluateBranch(made.inst, address, size, target))
      made.target = target;
    made.fallsThrough = !impl->analysis->isReturn(made.inst) &&
                        !impl->analysis->isUnconditionalBranch(made.inst) &&
                        !impl->analysis->isIndirectBranch(made.inst);
    code = code.drop_front(size);
    address += size;
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Instructions to cycles
//===----------------------------------------------------------------------===//

/// The instruction whose cost LLVM's model takes. If the model and Arm's
/// optimization guide differ, the higher cost counts; in the guide, scvtf takes
/// two slots with a fraction as without one.
llvm::MCInst CpuModel::Impl::priced(const llvm::MCInst &inst) const {
  const auto plain = plainConversions.find(inst.getOpcode());
  if (plain == plainConversions.end())
    return inst;
  llvm::MCInst result;
  result.setOpcode(plain->second);
  for (unsigned i = 0; i + 1 < inst.getNumOperands(); ++i)
    result.addOperand(inst.getOperand(i));
  return result;
}

namespace {
/// The input of llvm-mca for a trace. The builder owns the descriptions of the
/// instructions and must outlive them.
class PricedTrace {
public:
  template <typename ImplType>
  PricedTrace(const ImplType &impl, const Trace &trace)
      : instruments(*impl.subtarget, *impl.instructions),
        builder(*impl.subtarget, *impl.instructions, *impl.registers,
                impl.analysis.get(), instruments, kCallLatency) {
    sequence.reserve(trace.size());
    for (const MachineInstruction *instruction : trace) {
      auto built =
          builder.createInstruction(impl.priced(instruction->inst), {});
      if (!built) {
        llvm::consumeError(built.takeError());
        throw Error("llvm's model of '" + impl.cpu +
                    "' lacks the instruction '" + instruction->text + "'");
      }
      // The library treats the result of an eliminated move as its source, even
      // after the source changes.
      (*built)->clearOptimizableMove();
      sequence.push_back(std::move(*built));
    }
  }

  llvm::ArrayRef<std::unique_ptr<llvm::mca::Instruction>> get() const {
    return sequence;
  }

private:
  llvm::mca::InstrumentManager instruments;
  llvm::mca::InstrBuilder builder;
  std::vector<std::unique_ptr<llvm::mca::Instruction>> sequence;
};
} // namespace

double CpuModel::cycles(const Trace &trace) const {
  const auto passes = static_cast<unsigned>(
      std::max<size_t>(3, kPricedInstructions / trace.size()));
  const PricedTrace priced(*impl, trace);
  llvm::mca::CircularSourceMgr source(priced.get(), passes);
  llvm::mca::CustomBehaviour behaviour(*impl->subtarget, source,
                                       *impl->instructions);
  // 0 selects the CPU's own value. Loads may pass stores, for their addresses
  // differ.
  const llvm::mca::PipelineOptions options(0, 0, 0, 0, 0, 0, /*NoAlias=*/true);
  llvm::mca::Context mca(*impl->registers, *impl->subtarget);
  const std::unique_ptr<llvm::mca::Pipeline> pipeline =
      impl->subtarget->getSchedModel().isOutOfOrder()
          ? mca.createDefaultPipeline(options, source, behaviour)
          : mca.createInOrderPipeline(options, source, behaviour);
  llvm::Expected<unsigned> total = pipeline->run();
  if (!total)
    throw Error("llvm-mca: " + llvm::toString(total.takeError()));
  return double(*total) / passes;
}

double CpuModel::leastCycles(const Trace &trace) const {
  const llvm::MCSchedModel &model = impl->subtarget->getSchedModel();
  llvm::SmallVector<uint64_t> masks(model.getNumProcResourceKinds());
  llvm::mca::computeProcResourceMasks(model, masks);
  llvm::SmallVector<unsigned> index(64), usage(masks.size());
  for (unsigned i = 1; i < masks.size(); ++i)
    index[llvm::mca::getResourceStateIndex(masks[i])] = i;
  unsigned microOps = 0;
  const PricedTrace priced(*impl, trace);
  for (const auto &instruction : priced.get()) {
    const llvm::mca::InstrDesc &description = instruction->getDesc();
    microOps += description.NumMicroOps;
    for (const auto &[mask, used] : description.Resources)
      if (used.size())
        usage[index[llvm::mca::getResourceStateIndex(mask)]] += used.size();
  }
  return llvm::mca::computeBlockRThroughput(model, model.IssueWidth, microOps,
                                            usage);
}
