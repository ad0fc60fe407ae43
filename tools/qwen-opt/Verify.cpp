//===- Verify.cpp - Kernels verified before a file has its name -----------===//

#include "Verify.h"

#include "qwen/ABI/Error.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Backend.h"
#include "qwen/CodeGen/Lower.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/StringSaver.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/mman.h>
#include <unistd.h>

using namespace qwen;

namespace {
/// A file in memory that a child process reaches by its path, and that goes
/// with this process however it ends.
class MemoryFile {
public:
  MemoryFile() : descriptor(memfd_create("qwen-verify", MFD_CLOEXEC)) {
    if (descriptor < 0)
      throw Error(std::string("no memory file to verify with: ") +
                  std::strerror(errno));
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  ~MemoryFile() { close(descriptor); }

  std::string path() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" +
           std::to_string(descriptor);
  }

  void write(llvm::ArrayRef<char> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0)
        throw Error(std::string("no memory to verify with: ") +
                    std::strerror(errno));
      bytes = bytes.drop_front(static_cast<size_t>(count));
    }
  }

  std::string contents() const {
    std::string text;
    char buffer[4096];
    off_t offset = 0;
    for (ssize_t count;
         (count = pread(descriptor, buffer, sizeof(buffer), offset)) > 0;
         offset += count)
      text.append(buffer, static_cast<size_t>(count));
    return text;
  }

private:
  int descriptor;
};
} // namespace

/// The entries that `qwen-run verify --json` has printed.
static std::vector<std::string> verifiedKernels(const std::string &output) {
  std::vector<std::string> names;
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(output);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return names;
  }
  if (const llvm::json::Object *result = parsed->getAsObject())
    if (const llvm::json::Array *kernels = result->getArray("kernels"))
      for (const llvm::json::Value &kernel : *kernels)
        if (const llvm::json::Object *entry = kernel.getAsObject())
          if (auto name = entry->getString("kernel"),
              target = entry->getString("target");
              name && target)
            names.push_back((*name + "." + *target).str());
  return names;
}

/// Runs `command` verify FILE --json, which must name all of `kernels`.
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
  const std::vector<std::string> verified = verifiedKernels(output.contents());
  const std::string *forgotten =
      llvm::find_if_not(kernels, [&](const std::string &kernel) {
        return llvm::is_contained(verified, kernel);
      });
  if (forgotten != kernels.end())
    throw Error("cannot verify with '" + name +
                "': it says nothing about kernel " + *forgotten);
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

/// Verifies what this machine cannot run as it is in the file. Returns how.
static std::string verifyModelled(const TargetCode &code,
                                  const ArtifactInput &input,
                                  const std::string &native,
                                  CpuFeatureSet features) {
  const MemoryFile modelled;
  modelled.write(modelledArtifact(code, input, features));
  run(native, modelled.path(), entriesOf(code));
  const std::vector<std::string> kernels = calledKernels(*code.module);
  const auto real = llvm::count_if(kernels, [&](const std::string &name) {
    return features.containsAll(findKernel(name)->features());
  });
  const CpuFeatureSet missing =
      usedFeatures(*code.module, code.target.arch) - features;
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

  // One run for all targets that the runner, or this machine, can run.
  const CpuFeatureSet features = hostFeatures();
  const auto lacks = [&](const TargetCode &code) {
    return usedFeatures(*code.module, arch) - features;
  };
  std::vector<std::string> entries;
  for (const TargetCode &code : targets)
    if (!runner.empty() || lacks(code).empty())
      llvm::append_range(entries, entriesOf(code));
  if (!entries.empty())
    run(runner.empty() ? std::vector<std::string>{native} : splitWords(runner),
        file, entries);

  std::vector<std::string> lines;
  for (const TargetCode &code : targets) {
    const std::string of =
        targets.size() > 1 ? " of " + code.target.name : std::string();
    const std::string verified =
        "verified: " + std::to_string(entriesOf(code).size()) + " kernels" +
        of + ", ";
    if (!runner.empty())
      lines.push_back(verified + "emulated by " + runner);
    else if (lacks(code).empty())
      lines.push_back(verified + "native");
    else if (arch == Arch::X86_64)
      lines.push_back(verified + verifyModelled(code, input, native, features));
    else
      lines.push_back("not verified: this machine lacks " +
                      toString(lacks(code)) + (of.empty() ? "" : " for code") +
                      of + "; name an emulator with --runner");
  }
  return lines;
}
