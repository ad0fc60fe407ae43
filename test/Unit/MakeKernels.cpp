//===- MakeKernels.cpp - The kernel table as a file -----------------------===//
//
// make-kernels [--emit=so|asm|llvm|schedule] [--model] [--kernel=NAME]...
//              [--beyond=TARGET] [--schedule FIELD=VALUE,...] TARGET OUT
//
// Generates every kernel of the table that TARGET can run, or the named
// kernels, each with the features of its own instruction set. With
// --beyond=TARGET, the file lacks the kernels that this other target can run,
// because their code is the same there. The shared object is an artifact with
// only code, which the runtime can load; KernelTest compares its kernels with
// the reference. --model generates the kernels that
// this machine cannot run, if there are any, with models of their instructions
// (InstructionModels.h).
// --schedule changes fields of the schedule of one kernel (Schedule.h).
// --emit=schedule prints the schedule with the choices of each field.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/InstructionModels.h"
#include "qwen/CodeGen/Backend/KernelCode.h"
#include "qwen/CodeGen/Backend/Link.h"
#include "qwen/CodeGen/Schedule/Schedule.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"
#include <fstream>
#include <optional>

using namespace qwen;

/// The kernels to generate, in the order of the table.
static std::vector<KernelInfo>
selectKernels(const std::vector<std::string> &names, const Target &target,
              const std::string &beyond, bool model) {
  for (const std::string &name : names)
    if (!findKernel(name))
      throw Error("no kernel '" + name + "' in the table");
  std::optional<Target> without;
  if (!beyond.empty())
    without = resolveTarget(beyond);
  std::vector<KernelInfo> kernels;
  for (const KernelInfo &kernel : kernelTable())
    if (kernel.arch() == target.arch &&
        target.features.containsAll(kernel.features()) &&
        (!without || !without->features.containsAll(kernel.features())) &&
        (!model || !hostFeatures().containsAll(kernel.features())) &&
        (names.empty() || llvm::is_contained(names, kernel.name)))
      kernels.push_back(kernel);
  if (kernels.empty() && !model)
    throw Error("target '" + target.name + "' can run none of these kernels");
  return kernels;
}

namespace {
/// What a run makes of each kernel.
struct Generator {
  const Target &target;
  bool model;
  const std::string &changes;

  std::unique_ptr<llvm::Module> run(const KernelInfo &kernel,
                                    llvm::LLVMContext &context) const {
    std::unique_ptr<llvm::Module> module =
        generateKernel(kernel, target, context, changes);
    if (model)
      modelInstructions(*module, leastFeatures(target.arch));
    return module;
  }
};
} // namespace

static std::unique_ptr<llvm::Module>
entryTable(llvm::ArrayRef<KernelInfo> kernels, const Target &target,
           llvm::LLVMContext &context) {
  std::vector<std::string> names;
  for (const KernelInfo &kernel : kernels)
    names.push_back(nameForTarget(llvm::StringRef(kernel.name), target));
  return generateEntryTable(names, target, context);
}

static void write(const std::string &path, llvm::StringRef bytes) {
  if (path == "-") {
    llvm::outs() << bytes;
    return;
  }
  std::ofstream stream(path, std::ios::binary);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (!stream)
    throw Error("cannot write '" + path + "'");
}

static std::string makeSharedObject(llvm::ArrayRef<KernelInfo> kernels,
                                    const Generator &generator) {
  const Target &target = generator.target;
  std::vector<std::vector<char>> objects(kernels.size() + 1);
  parallelFor(objects.size(), machineThreads(), [&](size_t i, unsigned) {
    llvm::LLVMContext context;
    objects[i] =
        emitObject(i == kernels.size() ? *entryTable(kernels, target, context)
                                       : *generator.run(kernels[i], context),
                   target);
  });
  SharedObject object = linkSharedObject(objects, target);
  ArtifactHeader header = codeHeader(object, target.arch);
  header.fileSize = object.bytes.size();
  writeHeader(object, header);
  return {object.bytes.begin(), object.bytes.end()};
}

static std::string makeText(llvm::ArrayRef<KernelInfo> kernels,
                            const Generator &generator, bool assembly) {
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> whole =
      entryTable(kernels, generator.target, context);
  for (const KernelInfo &kernel : kernels)
    linkModule(*whole, generator.run(kernel, context));
  return assembly ? emitAssembly(*whole, generator.target) : printIR(*whole);
}

int main(int argc, char **argv) {
  std::string emit = "so", beyond, changes, spec, out;
  std::vector<std::string> names;
  bool model = false;
  const Program program("make-kernels", "Generates the kernels of the table");
  program.addText("--emit", emit).choices({"so", "asm", "llvm", "schedule"});
  program.addTexts("--kernel", names);
  program.addFlag("--model", model);
  program.addText("--beyond", beyond);
  program.addText("--schedule", changes);
  program.addText("TARGET", spec).required();
  program.addText("OUT", out).required();
  try {
    if (!program.parse(argc, argv))
      return 0;
    const Target target = resolveTarget(spec);
    const std::vector<KernelInfo> kernels =
        selectKernels(names, target, beyond, model);
    if ((!changes.empty() || emit == "schedule") &&
        (kernels.size() != 1 || kernels[0].provider() != KernelProvider::MLIR))
      throw Error("a schedule is of one product; name it with --kernel");
    if (emit == "schedule") {
      write(out,
            printSchedule(kernels[0], changedSchedule(kernels[0], changes)));
      return 0;
    }
    const Generator generator{target, model, changes};
    write(out, emit == "so" ? makeSharedObject(kernels, generator)
                            : makeText(kernels, generator, emit == "asm"));
  } catch (const Error &error) {
    llvm::errs() << "make-kernels: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
