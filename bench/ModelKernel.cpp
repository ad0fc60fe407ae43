//===- ModelKernel.cpp - What a kernel reaches on a CPU, by model ---------===//
//
// model-kernel OBJECT FUNCTION CPU [TOKENS PANELS] prints, as one line of JSON,
// the multiplications and the cycles of a pass of the loop of a kernel, and the
// peak of its dot instructions (KernelModel.h). FUNCTION is a part of a name
// that one function has. With TOKENS and PANELS it is a kernel of ours in a
// call of that size, else one of another project. For bench/mca.py.
//
//===----------------------------------------------------------------------===//

#include "qwen/ABI/Error.h"
#include "qwen/Model/KernelModel.h"
#include "qwen/Model/ObjectCode.h"

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

static int64_t parseCount(const char *what, llvm::StringRef text,
                          int64_t least) {
  int64_t count = 0;
  if (text.getAsInteger(10, count) || count < least || count > 1024)
    throw Error(std::string(what) + " is '" + text.str() +
                "' when a number from " + std::to_string(least) +
                " to 1024 is needed");
  return count;
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 6) {
    llvm::errs() << "usage: model-kernel OBJECT FUNCTION CPU [TOKENS PANELS]\n";
    return 2;
  }
  try {
    const ObjectCode object(argv[1]);
    const FunctionCode &function = findFunction(object, argv[2]);
    const CpuModel cpu(object.arch(), argv[3]);
    const std::vector<MachineInstruction> body =
        cpu.disassemble(function.bytes, function.address);
    const KernelRate rate =
        argc == 4 ? modelLoop(cpu, body)
                  : modelKernel(cpu, body,
                                {parseCount("TOKENS", argv[4], 8),
                                 parseCount("PANELS", argv[5], 1)});
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
