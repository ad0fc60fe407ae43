//===- Report.cpp - The performance certificate of a compiled model -------===//
//
// The manifest gives bytes and multiplications. llvm-mca's library
// (lib/CostModel) gives the cycles of the file's code. Nothing is run.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "Workload.h"
#include "artifact/Artifact.h"

#include "qwen/CodeGen/Backend/Target.h"
#include "qwen/Support/Error.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;
using nlohmann::ordered_json;

namespace {
struct ReportOptions {
  std::string file;
  std::string target;
  std::string cpu;
  std::optional<int64_t> context;
  std::optional<int64_t> prompt;
  double gigahertz = 0;
  int64_t cores = 0;
  double gigabytes = 0;
  bool json = false;

  bool hasMachine() const { return gigahertz > 0; }
  MachineSpeed machine() const {
    return {gigahertz * 1e9, static_cast<double>(cores), gigabytes * 1e9};
  }
};
} // namespace

static const TargetInfo &chooseTarget(const Manifest &manifest,
                                      const std::string &name) {
  if (name.empty())
    return manifest.targets.front();
  for (const TargetInfo &target : manifest.targets)
    if (target.name == name)
      return target;
  std::string names;
  for (const TargetInfo &target : manifest.targets)
    names += (names.empty() ? "" : ", ") + target.name;
  throw Error("it has no code for '" + name + "', only for " + names);
}

/// The CPU for which LLVM scheduled the target's code.
static std::string defaultCpu(const TargetInfo &target) {
  const std::string cpu = resolveTarget(target.name).tuneCpu;
  if (cpu.empty() || cpu == "generic")
    throw Error("its target '" + target.name +
                "' names no cpu; say which one is to be modelled with --cpu");
  return cpu;
}

/// The positions that an option asks for; the default is the smaller of 512 and
/// the model's context.
static int64_t positionsOf(const Manifest &manifest,
                           std::optional<int64_t> asked, const char *option) {
  constexpr int64_t kUsual = 512;
  const int64_t most = manifest.model.context;
  if (asked && *asked > most)
    throw Error(std::string(option) + " is " + std::to_string(*asked) +
                " when a sequence has " + std::to_string(most) +
                " positions at most");
  return asked.value_or(std::min(kUsual, most));
}

static void report(const ReportOptions &options) {
  const Artifact artifact(options.file);
  const Manifest &manifest = artifact.manifest();
  const TargetInfo &target = chooseTarget(manifest, options.target);
  const std::string cpu =
      options.cpu.empty() ? defaultCpu(target) : options.cpu;
  const int64_t context = positionsOf(manifest, options.context, "--context");
  const int64_t prompt = positionsOf(manifest, options.prompt, "--prompt");
  const int64_t callTokens = manifest.forward().limits.tokens;
  Workload workloads[] = {
      {"decode",
       "a decoded token at context " + std::to_string(context),
       {context - 1, 1, callTokens}},
      {"prefill",
       "a token of a prompt of " + std::to_string(prompt),
       {0, prompt, callTokens}}};
  KernelCycles cycles(options.file, target, cpu);
  for (Workload &workload : workloads)
    for (size_t op = 0; op < manifest.forward().ops.size(); ++op)
      workload.ops.push_back(
          costOf(manifest, target, op, workload.step, cycles));

  if (options.json) {
    ordered_json result = {
        {"model", manifest.model.name}, {"weights", manifest.weightFormats()},
        {"target", target.name},        {"cpu", cpu},
        {"context", context},           {"prompt", prompt}};
    for (const Workload &workload : workloads) {
      result[workload.key] = workload.toJson(manifest);
      if (options.hasMachine())
        result[workload.key]["tokens_per_second"] =
            workload.ceiling(options.machine());
    }
    for (const auto &[kernel, reason] : cycles.failures())
      result["no_cycles"][kernel] = reason;
    llvm::outs() << result.dump(1) << '\n';
    return;
  }
  llvm::outs() << manifest.model.name << ", " << manifest.weightFormats()
               << ", code for " << target.name << ", cycles of " << cpu
               << " by llvm-mca\n";
  for (const Workload &workload : workloads)
    workload.print(manifest);
  if (!cycles.failures().empty())
    llvm::outs()
        << "\nkernels without a cost model, whose ops have no cycles\n";
  for (const auto &[kernel, reason] : cycles.failures())
    llvm::outs() << "  " << kernel << ": " << reason << '\n';
  if (!options.hasMachine())
    return;
  llvm::outs() << llvm::formatv(
      "\nat most, with {0} cores of {1} GHz and {2} GB/s\n", options.cores,
      options.gigahertz, options.gigabytes);
  for (const Workload &workload : workloads)
    llvm::outs() << llvm::formatv("  {0,-34} {1:f1} tokens/s\n", workload.title,
                                  workload.ceiling(options.machine()));
}

void qwen::addReport(const Command &program) {
  const auto options = std::make_shared<ReportOptions>();
  const Command sub = program.addCommand(
      "report", "Print the bytes and multiplications of each op of a compiled "
                "model, and the cycles of its code in LLVM's model of a CPU");
  sub.addText("FILE", options->file, "Compiled model").required();
  sub.addText(
      "--target", options->target,
      "One of the file's targets, which qwen-run info lists; default is the "
      "best");
  sub.addText("--cpu", options->cpu,
              "CPU to model, by its LLVM name; default is the target's CPU; "
              "qwen-opt --list-targets names some");
  constexpr int64_t kMostPositions = int64_t{1} << 30;
  sub.addNumber("--context", options->context,
                "Positions that the decoded token attends to; default is the "
                "smaller of 512 and the model's context",
                1, kMostPositions);
  sub.addNumber("--prompt", options->prompt,
                "Tokens of the prompt; default is the smaller of 512 and the "
                "model's context",
                1, kMostPositions);
  const Option clock = sub.addNumber(
      "--ghz", options->gigahertz,
      "Clock of the cores in GHz; with --cores and --gbps, the report "
      "has an upper bound of tokens/s; default is none",
      0.001, 1000);
  const Option cores = sub.addNumber(
      "--cores", options->cores, "Number of cores; default is none", 1, 4096);
  const Option memory = sub.addNumber(
      "--gbps", options->gigabytes,
      "Memory bandwidth of all cores together in GB/s (10^9 bytes); "
      "default is none",
      0.001, 1e6);
  clock.needs(cores).needs(memory);
  cores.needs(clock);
  memory.needs(clock);
  sub.addFlag("--json", options->json, "Print JSON with one entry for each op");
  sub.onRun([options] {
    try {
      report(*options);
    } catch (const Error &error) {
      // The reader's errors already name the file.
      const llvm::StringRef what = error.what();
      if (what.contains(options->file))
        throw;
      throw Error(part::file(options->file) + ": " + what.str(), error.kind());
    }
  });
}
