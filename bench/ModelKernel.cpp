//===- ModelKernel.cpp - Cycles of a kernel's loop, by static model -------===//
//
// model-kernel OBJECT FUNCTION CPU [FIELD=VALUE,...] prints one line of JSON:
// multiplications and cycles of one pass of a kernel's loop, and the peak of
// its dot instructions (KernelModel.h). FUNCTION is a kernel of the table,
// whose schedule the fields change, or a part of the name of one function of
// another project. Of the gated delta rule it models a call (CallModel.h), in
// code for CPU that it generates. For bench/mca.py and bench/tune.py.
//
//===----------------------------------------------------------------------===//

#include "qwen/CodeGen/Backend/CallCode.h"
#include "qwen/CostModel/CallModel.h"
#include "qwen/CostModel/ObjectCode.h"
#include "qwen/Support/Error.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;

static const FunctionCode &findFunction(const ObjectCode &object,
                                        llvm::StringRef part) {
  const FunctionCode *found = nullptr;
  for (const FunctionCode &function : object.functions())
    if (llvm::StringRef(function.name).contains(part)) {
      if (found)
        throw Error("'" + part.str() + "' is a part of '" + found->name +
                    "' and of '" + function.name + "'");
      found = &function;
    }
  if (!found)
    throw Error("no function has '" + part.str() + "' in its name");
  return *found;
}

/// A call of the gated delta rule for a key of 128 values.
static KernelRate modelDeltaRule(const CpuModel &cpu, const KernelInfo &kernel,
                                 const std::string &target) {
  constexpr int64_t keyDim = 128;
  const CallCode call =
      generateCall(kernel, resolveTarget(target),
                   {.length = keyDim, .tokens = kModelledTokens});
  const ObjectCode object(call.object, std::string(kernel.name));
  const FunctionCode &function = findFunction(object, kernel.name);
  return modelDeltaRule(cpu, cpu.disassemble(function.bytes, function.address),
                        call.passes, keyDim);
}

static KernelRate model(const CpuModel &cpu,
                        llvm::ArrayRef<MachineInstruction> body,
                        std::string_view function, const std::string &target,
                        std::string_view changes) {
  const KernelInfo *kernel = findKernel(function);
  if (!kernel)
    return modelLoop(cpu, body);
  if (kernel->op == KernelOp::DeltaRule)
    return modelDeltaRule(cpu, *kernel, target);
  return modelKernel(cpu, body, *kernel, changedSchedule(*kernel, changes));
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5) {
    llvm::errs()
        << "usage: model-kernel OBJECT FUNCTION CPU [FIELD=VALUE,...]\n";
    return 2;
  }
  try {
    const ObjectCode object(argv[1]);
    const FunctionCode &function = findFunction(object, argv[2]);
    const CpuModel cpu(object.arch(), argv[3]);
    const std::vector<MachineInstruction> body =
        cpu.disassemble(function.bytes, function.address);
    const KernelRate rate =
        model(cpu, body, argv[2], argv[3], argc == 5 ? argv[4] : "");
    llvm::outs() << llvm::formatv(
                        R"({{"macs": {0}, "cycles": {1:f3}, "peak": {2:f3}})",
                        rate.macs, rate.cycles, rate.peak)
                 << '\n';
  } catch (const std::exception &error) {
    llvm::errs() << "model-kernel: " << argv[1] << ": " << error.what() << '\n';
    return 1;
  }
  return 0;
}
