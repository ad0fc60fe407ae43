//===- KernelModel.cpp - Cycles of a kernel's loops on a CPU --------------===//

#include "qwen/CostModel/KernelModel.h"

#include "ControlFlow.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace qwen;

//===----------------------------------------------------------------------===//
// Multiplications of an instruction
//===----------------------------------------------------------------------===//

/// Multiplications of an integer dot instruction for each 128 bits of its
/// registers, or all of an AMX instruction; 0 for other instructions.
static int64_t integerMacs(const MachineInstruction &instruction) {
  const llvm::StringRef text = instruction.text;
  return llvm::StringSwitch<int64_t>(instruction.name())
      .Cases({"smmla", "usmmla"}, 32)
      .Case("sdot", 16)
      .Cases({"smull", "smull2", "smlal", "smlal2"},
             text.contains(".8h") ? 8 : 0)
      .Cases({"vpdpbusd", "vpmaddubsw"}, 16)
      .Cases({"tdpbssd", "tdpbusd"}, int64_t{16} * 16 * 64)
      .Default(0);
}

/// Multiplications of an f32 fma instruction for each 128 bits of its
/// registers; 0 for other instructions.
static int64_t floatMacs(const MachineInstruction &instruction) {
  const llvm::StringRef name = instruction.name(), text = instruction.text;
  if (name.starts_with("vfmadd") && name.ends_with("ps"))
    return 4;
  return name == "fmla" && (text.contains(".4s") || text.contains(".s,")) ? 4
                                                                          : 0;
}

/// Bits of the widest register that an instruction names.
static int64_t registerBits(const CpuModel &cpu,
                            const MachineInstruction &instruction) {
  const llvm::StringRef text = instruction.text;
  if (cpu.arch() == Arch::X86_64)
    return text.contains("%zmm") ? 512 : text.contains("%ymm") ? 256 : 128;
  return text.contains(" z") ? cpu.vectorBits() : 128;
}

namespace {
/// Counts the multiplications of a kernel's instructions.
class MacCounter {
public:
  MacCounter(const CpuModel &cpu, llvm::ArrayRef<MachineInstruction> body)
      : cpu(cpu), integers(llvm::any_of(body, integerMacs)),
        pairs(llvm::any_of(body, [](const MachineInstruction &instruction) {
          return instruction.name() == "smmla";
        })) {}

  int64_t of(const MachineInstruction &instruction) const {
    // A kernel of pairs multiplies only minimums by sdot.
    if (pairs && instruction.name() == "sdot")
      return 0;
    const int64_t macs =
        integers ? integerMacs(instruction) : floatMacs(instruction);
    return instruction.name().starts_with("tdp")
               ? macs
               : macs * registerBits(cpu, instruction) / 128;
  }

  int64_t of(const Trace &trace) const {
    int64_t macs = 0;
    for (const MachineInstruction *instruction : trace)
      macs += of(*instruction);
    return macs;
  }

private:
  const CpuModel &cpu;
  const bool integers, pairs;
};
} // namespace

//===----------------------------------------------------------------------===//
// Loops of a kernel
//===----------------------------------------------------------------------===//

static int64_t macsOf(const ControlFlow &flow, size_t loop,
                      const MacCounter &macs) {
  int64_t result = 0;
  for (unsigned i : flow.loops().at(loop).set_bits())
    result += macs.of(flow.body()[i]);
  return result;
}

/// The innermost loop with the most multiplications; of equals, the first. If a
/// kernel of SVE has code for vectors of 128 bits, with NEON's loads, and code
/// for longer ones, only the loops for this CPU's vectors count. Both load
/// registers of SVE from the stack.
static size_t findHotLoop(const ControlFlow &flow, const CpuModel &cpu,
                          const MacCounter &macs) {
  std::map<size_t, int64_t> counts;
  for (const auto &[head, body] : flow.loops())
    if (const int64_t count = macsOf(flow, head, macs))
      counts[head] = count;
  const bool scalable = cpu.vectorBits() > 128;
  std::optional<size_t> hot;
  bool hotIsOwn = false;
  for (const auto &[head, count] : counts) {
    const size_t loop = head;
    if (llvm::any_of(counts, [&](const auto &other) {
          return flow.isNested(other.first, loop);
        }))
      continue;
    const bool isOwn =
        scalable ==
        llvm::any_of(flow.loops().at(head).set_bits(), [&](unsigned i) {
          const MachineInstruction &instruction = flow.body()[i];
          return instruction.name().starts_with("ld1") &&
                 !instruction.name().starts_with("ld1r") &&
                 llvm::StringRef(instruction.text).contains(" z");
        });
    if (!hot || isOwn > hotIsOwn ||
        (isOwn == hotIsOwn && count > counts[*hot])) {
      hot = head;
      hotIsOwn = isOwn;
    }
  }
  if (!hot)
    throw Error("there is no loop with multiplications");
  return *hot;
}

/// The loop over activation blocks, if any: the innermost loop around the hot
/// one that widens scales.
static std::optional<size_t> findBlockLoop(const ControlFlow &flow,
                                           size_t hot) {
  for (size_t head : flow.around(hot))
    for (unsigned i : flow.loops().at(head).set_bits()) {
      const llvm::StringRef name = flow.body()[i].name();
      if (name.starts_with("fcvt") || name.starts_with("vcvtph2ps"))
        return head;
    }
  return std::nullopt;
}

static bool isDirectlyIn(const ControlFlow &flow, size_t inner, size_t outer) {
  const std::vector<size_t> around = flow.around(inner);
  return !around.empty() && around.front() == outer;
}

/// The counts of the loops in `outer`, for a kernel that unpacks weights once
/// for many tokens. `outer` arranges activations; then, for each panel, it
/// unpacks weights and multiplies. `passes` of the hot loop process one block
/// of a tile.
static std::map<size_t, int64_t>
countsForMany(const ControlFlow &flow, const CpuModel &cpu,
              const MacCounter &macs, const UnpackOnceSchedule &schedule,
              size_t hot, int64_t passes, size_t block, size_t outer) {
  const std::vector<size_t> around = flow.around(hot);
  std::map<size_t, int64_t> counts = {{block, schedule.panels}};
  for (const auto &[head, body] : flow.loops()) {
    if (head != block && isDirectlyIn(flow, head, outer))
      counts[head] = schedule.strip / 2;
    if (head != hot && isDirectlyIn(flow, head, block) &&
        !llvm::is_contained(around, head))
      counts[head] = kBlockGroups;
  }
  // Around the hot loop, innermost first: a loop over the tiles of tokens,
  // unless the hot loop is that one, then a loop over the tiles of outputs, if
  // there are several.
  size_t tokens = hot;
  auto next = around.begin();
  if (passes > 1) {
    counts[hot] = passes;
    tokens = *next++;
  }
  const int64_t outputs =
      std::min(kPanelOutputs, 4 * schedule.vectors * cpu.vectorBits() / 128);
  counts[tokens] = schedule.strip * outputs * kActivationBlock /
                   (macsOf(flow, hot, macs) * passes);
  if (next != around.end() && *next != block)
    counts[*next] = kPanelOutputs / outputs;
  return counts;
}

/// Groups of 32 along K in one pass of the innermost loop.
static int64_t groupsOfPass(const KernelSchedule &schedule) {
  return std::visit(
      [](const auto &loops) -> int64_t {
        if constexpr (requires { loops.unroll; })
          return loops.unroll;
        else
          return kBlockGroups;
      },
      schedule.loops);
}

/// The instructions of one pass of the loop over blocks. For kernels without
/// such a loop, and for AMX, whose model is poor, one pass of the hot loop.
static Trace blockPass(const ControlFlow &flow, const CpuModel &cpu,
                       const MacCounter &macs, const KernelSchedule &schedule) {
  const size_t hot = findHotLoop(flow, cpu, macs);
  const auto *strips = std::get_if<UnpackOnceSchedule>(&schedule.loops);
  const int64_t passes = kBlockGroups / groupsOfPass(schedule);
  // If one pass takes all groups of a block, the hot loop is the loop over
  // blocks.
  if (!strips && passes == 1)
    return flow.execute(hot, {});
  const std::optional<size_t> block = findBlockLoop(flow, hot);
  if (!block)
    throw Error("there is no loop over blocks");
  if (!strips) {
    // Each stream has its own loop over groups.
    std::map<size_t, int64_t> counts;
    for (const auto &[head, body] : flow.loops())
      if (isDirectlyIn(flow, head, *block))
        counts[head] = passes;
    return flow.execute(block, counts);
  }
  const std::vector<size_t> around = flow.around(*block);
  if (around.empty())
    throw Error("there is no loop around the one over blocks");
  return flow.execute(around.front(),
                      countsForMany(flow, cpu, macs, *strips, hot, passes,
                                    *block, around.front()));
}

static KernelRate rateOf(const CpuModel &cpu, const MacCounter &macs,
                         const Trace &pass) {
  Trace dots;
  for (const MachineInstruction *instruction : pass)
    if (macs.of(*instruction))
      dots.push_back(instruction);
  if (dots.empty())
    throw Error("the loop over blocks does not come by its multiplications");
  return {macs.of(pass), cpu.cycles(pass),
          double(macs.of(dots)) / cpu.leastCycles(dots)};
}

KernelRate qwen::modelKernel(const CpuModel &cpu,
                             llvm::ArrayRef<MachineInstruction> body,
                             const KernelInfo &kernel,
                             KernelSchedule schedule) {
  auto *strips = std::get_if<UnpackOnceSchedule>(&schedule.loops);
  if (strips && cpu.vectorBits() <= 128)
    *strips = fixedSchedule(kernel, *strips);
  const ControlFlow flow(body);
  const MacCounter macs(cpu, body);
  const KernelRate rate =
      rateOf(cpu, macs, blockPass(flow, cpu, macs, schedule));
  const int64_t whole =
      strips ? strips->strip * strips->panels * kPanelOutputs * kActivationBlock
             : rate.macs;
  if (rate.macs != whole)
    throw Error("the model finds " + std::to_string(rate.macs) +
                " multiplications in a pass where the schedule has " +
                std::to_string(whole) + "; was the code made with another?");
  return rate;
}

KernelRate qwen::modelLoop(const CpuModel &cpu,
                           llvm::ArrayRef<MachineInstruction> body) {
  const ControlFlow flow(body);
  const MacCounter macs(cpu, body);
  const size_t hot = findHotLoop(flow, cpu, macs);
  Trace pass = flow.execute(hot, {});
  const bool scales = llvm::any_of(pass, [](const auto *instruction) {
    return floatMacs(*instruction) != 0;
  });
  if (const std::vector<size_t> around = flow.around(hot);
      !scales && !around.empty())
    pass = flow.execute(around.front(), {{hot, 1}});
  return rateOf(cpu, macs, pass);
}
