//===- ModelKernel.cpp - Cycles of a kernel's loop, by static model -------===//
//
// model-kernel OBJECT FUNCTION CPU [FIELD=VALUE,...] prints one line of JSON:
// multiplications and cycles of one pass of a kernel's loop, and the peak of
// its dot instructions (KernelModel.h), or of a call of the gated delta rule
// (CallModel.h). FUNCTION is a kernel of the table, whose schedule the fields
// change, or a part of the name of one function of another project. For
// bench/mca.py and bench/tune.py.
//
//===----------------------------------------------------------------------===//

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

static KernelRate model(const CpuModel &cpu,
                        llvm::ArrayRef<MachineInstruction> body,
                        std::string_view function, std::string_view changes) {
  const KernelInfo *kernel = findKernel(function);
  if (!kernel)
    return modelLoop(cpu, body);
  if (kernel->op == KernelOp::DeltaRule)
    return modelDeltaRule(cpu, body, *kernel, 128);
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
    const KernelRate rate = model(cpu, body, argv[2], argc == 5 ? argv[4] : "");
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
