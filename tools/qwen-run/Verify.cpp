//===- Verify.cpp - Kernels of a file against the reference ---------------===//

#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"
#include "qwen/Verify/KernelVerifier.h"

#include <algorithm>
#include <csignal>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

namespace {
struct VerifyCommand {
  ModelFile file;
  bool json = false;
};
} // namespace

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

/// The start of the line about a fault: the running kernel and its case.
static char running[1024];
static size_t runningSize;

static void setRunning(std::string_view kernel,
                       const std::string &description) {
  const int size =
      snprintf(running, sizeof(running),
               "qwen-run: kernel %.*s: %s: ", static_cast<int>(kernel.size()),
               kernel.data(), description.c_str());
  runningSize = std::min(static_cast<size_t>(size), sizeof(running) - 1);
}

static void reportFault(int number, siginfo_t *info, void *) {
  static constexpr char illegal[] =
      "has an instruction that this machine lacks\n";
  static constexpr char memory[] = "accesses memory outside of its operands\n";
  if (number == SIGBUS)
    endOnFileFault(info->si_addr);
  (void)!write(STDERR_FILENO, running, runningSize);
  if (number == SIGILL)
    (void)!write(STDERR_FILENO, illegal, sizeof(illegal) - 1);
  else
    (void)!write(STDERR_FILENO, memory, sizeof(memory) - 1);
  _exit(1);
}

/// Makes a kernel's fault end the program with one line.
static void catchFaults() {
  struct sigaction action = {};
  action.sa_sigaction = reportFault;
  action.sa_flags = SA_SIGINFO;
  for (int number : {SIGSEGV, SIGBUS, SIGILL})
    sigaction(number, &action, nullptr);
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

/// The model's sizes, and small sizes with a shorter last block.
static VerifySizes sizesOf(const ModelInfo &model) {
  VerifySizes sizes = {{32, 96, 160, 288}, {16, 24}, {1, 2, 9, 17}};
  for (int64_t k :
       {model.hiddenSize, model.heads * model.headDim, model.intermediateSize,
        model.experts ? model.experts->width : model.hiddenSize})
    if (std::ranges::find(sizes.depths, k) == sizes.depths.end())
      sizes.depths.push_back(k);
  if (std::ranges::find(sizes.headDims, model.headDim) == sizes.headDims.end())
    sizes.headDims.push_back(model.headDim);
  return sizes;
}

namespace {
struct Verified {
  std::string kernel;
  std::string target;
  int64_t cases;
};
} // namespace

static Verified verifyEntry(const VerifySizes &sizes, std::string_view name,
                            void *function) {
  const size_t dot = name.find('.');
  const KernelInfo *kernel = findKernel(name.substr(0, dot));
  if (kernel == nullptr)
    throw Error("kernel " + std::string(name) +
                " is not in the table of this version; recompile the model "
                "with qwen-opt");
  KernelVerifier verifier(sizes, [&](const std::string &description) {
    setRunning(name, description);
  });
  try {
    return {std::string(kernel->name), std::string(name.substr(dot + 1)),
            verifier.verify(*kernel, function)};
  } catch (const Error &difference) {
    throw Error("kernel " + std::string(name) + ": " + difference.what());
  }
}

static void print(const Verified &result) {
  char line[256];
  snprintf(line, sizeof(line), "%-36s %-20s %6lld cases\n",
           result.kernel.c_str(), result.target.c_str(),
           static_cast<long long>(result.cases));
  writeOut(line);
}

static void verify(const VerifyCommand &command) {
  const auto start = std::chrono::steady_clock::now();
  const Artifact artifact(command.file.path());
  artifact.selectTarget(hostArch(), hostFeatures());
  const ElfMapping code = artifact.loadCode();
  const std::vector<TargetInfo> &targets = artifact.manifest().targets;
  const VerifySizes sizes = sizesOf(artifact.manifest().model);
  catchFaults();

  std::vector<JsonText> kernels;
  int64_t cases = 0;
  for (const auto &[name, function] : code.entries()) {
    const size_t dot = name.find('.');
    const std::string_view suffix = name.substr(std::min(dot + 1, name.size()));
    const auto target = std::ranges::find(targets, suffix, &TargetInfo::name);
    const bool isProgram =
        std::ranges::count(artifact.manifest().programs, name.substr(0, dot),
                           &ProgramInfo::name) != 0;
    if (isProgram || target == targets.end() ||
        !target->runsOn(hostArch(), hostFeatures()))
      continue;
    const Verified result = verifyEntry(sizes, name, function);
    if (!command.json)
      print(result);
    kernels.push_back(jsonObject({{"kernel", result.kernel},
                                  {"target", result.target},
                                  {"cases", result.cases}}));
    cases += result.cases;
  }

  std::vector<std::string> others;
  for (const TargetInfo &target : targets)
    if (!target.runsOn(hostArch(), hostFeatures())) {
      others.push_back(target.name);
      if (!command.json)
        writeOut("not verified: " + target.name +
                 ", which this machine does not run\n");
    }
  if (command.json) {
    writeJson(jsonObject({{"file", artifact.path()},
                          {"kernels", jsonArray(kernels)},
                          {"not_verified", jsonArray(others)},
                          {"cases", cases},
                          {"seconds", secondsSince(start)}}),
              2);
    return;
  }
  char line[128];
  snprintf(
      line, sizeof(line),
      "%zu kernels match the reference bit for bit in %lld cases (%.1f s)\n",
      kernels.size(), static_cast<long long>(cases), secondsSince(start));
  writeOut(line);
}

void qwen::run::addVerify(const Command &program) {
  const auto command = std::make_shared<VerifyCommand>();
  const Command sub = program.addCommand(
      "verify", "Compare every kernel with the reference, bit for bit");
  addFile(sub, command->file);
  sub.addFlag("--json", command->json, "Print JSON");
  sub.onRun([command] { verify(*command); });
}
