//===- Verify.cpp - Verification of the kernels of a new file -------------===//

#include "Verify.h"

#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/StringSaver.h"

#include <nlohmann/json.hpp>

#include <filesystem>

using namespace qwen;

/// The entries in the `output` of `qwen-run verify --json`. An error calls that
/// program `name`.
static std::vector<std::string> verifiedKernels(const std::string &output,
                                                const std::string &name) {
  try {
    const nlohmann::json result = nlohmann::json::parse(output);
    std::vector<std::string> entries;
    for (const nlohmann::json &kernel : result.at("kernels"))
      entries.push_back(
          kernel.at("kernel").get<std::string>().append(".").append(
              kernel.at("target").get<std::string>()));
    return entries;
  } catch (const nlohmann::json::exception &) {
    throw Error("cannot verify with '" + name +
                "': it does not print what qwen-run verify --json prints");
  }
}

/// Runs `command` verify FILE --json. Throws Error if it does not verify all of
/// `kernels`.
static void run(llvm::ArrayRef<std::string> command, const std::string &file,
                llvm::ArrayRef<std::string> kernels) {
  const std::string name = llvm::join(command, " ");
  llvm::ErrorOr<std::string> program =
      llvm::sys::findProgramByName(command.front());
  if (!program)
    throw Error("cannot verify with '" + name + "': no program '" +
                command.front() + "'");
  std::vector<llvm::StringRef> arguments(command.begin(), command.end());
  arguments.insert(arguments.end(), {"verify", file, "--json"});
  const MemoryFile output, errors;
  const std::string outputPath = output.path(), errorsPath = errors.path();
  std::string message;
  const int status = llvm::sys::ExecuteAndWait(
      *program, arguments, std::nullopt,
      {llvm::StringRef(), llvm::StringRef(outputPath),
       llvm::StringRef(errorsPath)},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status != 0) {
    const std::string text = errors.contents();
    llvm::StringRef line = llvm::StringRef(text).split('\n').first;
    if (line.consume_front("qwen-run: kernel "))
      throw Error("wrong kernel " + line.str());
    line.consume_front("qwen-run: ");
    throw Error("cannot verify with '" + name + "': " +
                (!line.empty() ? line.str()
                 : !message.empty()
                     ? message
                     : "its status is " + std::to_string(status)));
  }
  const std::vector<std::string> verified =
      verifiedKernels(output.contents(), name);
  const std::string *missing =
      llvm::find_if_not(kernels, [&](const std::string &kernel) {
        return llvm::is_contained(verified, kernel);
      });
  if (missing != kernels.end())
    throw Error("cannot verify with '" + name +
                "': it says nothing about kernel " + *missing);
}

/// The qwen-run in the folder of this program.
static std::string nativeRunner() {
  std::error_code ignored;
  return std::filesystem::canonical("/proc/self/exe", ignored)
      .replace_filename("qwen-run")
      .string();
}

static std::vector<std::string> splitWords(const std::string &runner) {
  llvm::BumpPtrAllocator allocator;
  llvm::StringSaver saver(allocator);
  llvm::SmallVector<const char *> words;
  llvm::cl::TokenizeGNUCommandLine(runner, saver, words);
  if (words.empty())
    throw Error("--runner is empty when the command of an emulator is needed");
  return {words.begin(), words.end()};
}

/// The names of a target's kernels in the entry table.
static std::vector<std::string> entriesOf(const TargetCode &code) {
  std::vector<std::string> names;
  for (const std::string &kernel : calledKernels(*code.module))
    names.push_back(nameForTarget(kernel, code.target));
  return names;
}

/// Verifies a target's kernels with models of the instructions that need
/// `missing`, which this machine lacks. Returns the method for the summary.
static std::string verifyModelled(const TargetCode &code,
                                  const ArtifactInput &input,
                                  const std::string &native,
                                  CpuFeatureSet missing) {
  const CpuFeatureSet features = hostFeatures();
  const MemoryFile modelled;
  modelled.write(modelledArtifact(code, input, features));
  run(native, modelled.path(), entriesOf(code));
  const std::vector<std::string> kernels = calledKernels(*code.module);
  const auto real = llvm::count_if(kernels, [&](const std::string &name) {
    return features.containsAll(findKernel(name)->features());
  });
  return (real ? std::to_string(real) + " native, " : "") +
         std::to_string(kernels.size() - static_cast<size_t>(real)) +
         " instruction modelled (" + toString(missing) + ")";
}

std::vector<std::string>
qwen::verifyArtifact(const std::string &file, const std::string &runner,
                     llvm::ArrayRef<TargetCode> targets,
                     const ArtifactInput &input) {
  const Arch arch = targets.front().target.arch;
  const std::string native = nativeRunner();
  if (runner.empty() && arch != hostArch())
    return {"not verified: " + std::string(archName(arch)) +
            " code needs --runner with an emulator and its qwen-run"};
  if (runner.empty() && !llvm::sys::fs::can_execute(native))
    return {"not verified: there is no " + native};

  // One run verifies all targets that the runner or this machine can run.
  std::vector<CpuFeatureSet> missing;
  std::vector<std::string> entries;
  for (const TargetCode &code : targets) {
    missing.push_back(usedFeatures(*code.module, arch) - hostFeatures());
    if (!runner.empty() || missing.back().empty())
      llvm::append_range(entries, entriesOf(code));
  }
  if (!entries.empty())
    run(runner.empty() ? std::vector<std::string>{native} : splitWords(runner),
        file, entries);

  std::vector<std::string> lines;
  for (const auto &[code, lacks] : llvm::zip_equal(targets, missing)) {
    const std::string of =
        targets.size() > 1 ? llvm::formatv(" of {0}", code.target.name).str()
                           : std::string();
    const std::string verified =
        llvm::formatv("verified: {0} kernels{1}, ", entriesOf(code).size(), of);
    if (!runner.empty())
      lines.push_back(llvm::formatv("{0}emulated by {1}", verified, runner));
    else if (lacks.empty())
      lines.push_back(llvm::formatv("{0}native", verified));
    else if (arch == Arch::X86_64)
      lines.push_back(llvm::formatv(
          "{0}{1}", verified, verifyModelled(code, input, native, lacks)));
    else
      lines.push_back(llvm::formatv(
          "not verified: this machine lacks {0}{1}{2}; name an emulator with "
          "--runner",
          toString(lacks), of.empty() ? "" : " for code", of));
  }
  return lines;
}
