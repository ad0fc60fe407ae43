//===- OpCost.cpp - What an op of a compiled model costs ------------------===//

#include "OpCost.h"

#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CostModel/CallModel.h"
#include "qwen/Support/Error.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

KernelCycles::KernelCycles(const std::string &file, const TargetInfo &target,
                           const std::string &cpu)
    : object(file), target(resolveTarget(target.name)),
      model(target.arch, cpu) {}

template <typename Compute>
std::optional<double> KernelCycles::cached(const KernelInfo &kernel,
                                           CallSize size, Compute compute) {
  const auto [entry, isNew] = known.try_emplace({kernel.name, size});
  if (isNew)
    try {
      entry->second = compute();
    } catch (const Error &error) {
      failed.emplace(kernel.name, error.what());
    }
  return entry->second;
}

/// The instructions of a kernel in `object`.
static std::vector<MachineInstruction> codeOf(const KernelInfo &kernel,
                                              const Target &target,
                                              const ObjectCode &object,
                                              const CpuModel &model) {
  const std::string symbol =
      nameForTarget(llvm::StringRef(kernel.name), target);
  const FunctionCode *code = object.find(symbol);
  if (!code)
    throw Error("the file has no function '" + symbol + "'; compile it again");
  return model.disassemble(code->bytes, code->address);
}

std::optional<double> KernelCycles::ofMac(const KernelInfo &kernel) {
  return cached(kernel, {}, [&] {
    return 1 / modelKernel(model, codeOf(kernel, target, object, model), kernel,
                           scheduleOf(kernel))
                   .macsPerCycle();
  });
}

std::optional<double> KernelCycles::ofCall(const KernelInfo &kernel,
                                           CallSize size) {
  return cached(kernel, size, [&] {
    const CallCode call = generateCall(kernel, target, size);
    const ObjectCode code(call.object, std::string(kernel.name));
    return modelCall(model, codeOf(kernel, target, code, model), call.passes);
  });
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// A kernel of an op, by its index in the list of `target`.
static const KernelInfo &kernelAt(const TargetInfo &target, size_t index) {
  const KernelInfo *kernel = findKernel(target.kernels[index]);
  if (!kernel)
    throw Error("its kernel '" + target.kernels[index] +
                "' is none of this version's; compile it again");
  return *kernel;
}

/// Cycles of the calls of `kernel` that `calls` describes, in a step.
static std::optional<double>
cyclesOf(const KernelInfo &kernel, const OpWork &work, const KernelCalls &calls,
         const SequenceStep &step, KernelCycles &cycles) {
  const auto [number, macs] = callsOfStep(work, calls, step);
  const auto times = [](std::optional<double> one, double count) {
    return one ? std::optional(*one * count) : one;
  };
  if (kernel.provider() == KernelProvider::MLIR)
    return times(cycles.ofMac(kernel), macs);
  if (number == 0)
    return 0;
  const bool takesTokens =
      llvm::is_contained(infoOf(kernel.op).sizes, SizeRole::Tokens);
  const int64_t tokens =
      takesTokens ? std::min(step.tokens, kModelledTokens) : 1;
  return times(cycles.ofCall(
                   kernel, {calls.length, calls.queries, tokens, calls.chosen}),
               number / static_cast<double>(tokens));
}

OpCost qwen::costOf(const Manifest &manifest, const TargetInfo &target,
                    size_t op, const SequenceStep &step, KernelCycles &cycles) {
  const ProgramInfo &forward = manifest.forward();
  const OpWork &work = forward.work[op];
  const auto place = static_cast<size_t>(&target - manifest.targets.data());
  const std::vector<size_t> &kernels = forward.kernels[place][op];
  const bool many = step.tokens > 1 && work.count == kTokensOfCall;
  const StepWork moved = workOfStep(work, step);
  const auto tokens = static_cast<double>(step.tokens);
  OpCost cost = {moved.bytes / tokens,
                 moved.memoryBytes / tokens,
                 moved.macs / tokens,
                 {},
                 {}};
  double sum = 0;
  bool isKnown = !work.calls.empty();
  for (const KernelCalls &calls : work.calls) {
    const KernelInfo &kernel = kernelAt(
        target, kernels[static_cast<size_t>(
                    many && calls.gemm != 0 ? calls.gemm : calls.kernel)]);
    if (!llvm::is_contained(cost.kernels, kernel.name))
      cost.kernels.emplace_back(kernel.name);
    const std::optional<double> taken =
        cyclesOf(kernel, work, calls, step, cycles);
    isKnown &= taken.has_value();
    sum += taken.value_or(0) / tokens;
  }
  if (isKnown)
    cost.cycles = sum;
  return cost;
}
