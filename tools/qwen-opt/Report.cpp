//===- Report.cpp - The performance certificate of a compiled model -------===//
//
// The manifest gives bytes and multiplications. llvm-mca's library
// (lib/CostModel) gives the cycles of the file's code. Nothing is run.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "OpCost.h"
#include "artifact/Artifact.h"

#include "qwen/CodeGen/Backend/Target.h"
#include "qwen/Support/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <nlohmann/json.hpp>

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
};

/// Ops that differ only in their layer.
struct CostRow {
  std::string name;
  int64_t ops = 0;
  OpCost cost;
};

/// The costs of prefill or of decode, for each token.
struct Workload {
  /// Key in JSON.
  const char *key;
  std::string title;
  std::vector<OpCost> ops;

  double cycles() const {
    double sum = 0;
    for (const OpCost &op : ops)
      sum += op.cycles.value_or(0);
    return sum;
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Ceilings
//===----------------------------------------------------------------------===//

/// Upper bound on tokens a second. Each op takes the longer of two times: the
/// time of its reads (weights, KV cache) and the time of its instructions.
static double ceiling(const ReportOptions &options, const Manifest &manifest,
                      const Workload &workload, const SequenceStep &step) {
  const double cyclesASecond =
      options.gigahertz * 1e9 * static_cast<double>(options.cores);
  double seconds = 0;
  for (const auto &[cost, work] :
       llvm::zip_equal(workload.ops, manifest.forward().work)) {
    OpWork memory = work;
    // Activations are in the caches of the cores.
    memory.tokenBytes = 0;
    const double bytes =
        workOfStep(memory, step).bytes / static_cast<double>(step.tokens);
    seconds += std::max(bytes / (options.gigabytes * 1e9),
                        cost.cycles.value_or(0) / cyclesASecond);
  }
  return 1 / seconds;
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

/// "layers.*.mlp.down_proj": an op's name for all layers.
static std::string withoutLayer(llvm::StringRef name) {
  llvm::StringRef rest = name;
  uint64_t layer = 0;
  if (!rest.consume_front("layers.") || rest.consumeInteger(10, layer))
    return name.str();
  return "layers.*" + rest.str();
}

static std::vector<CostRow> mergeLayers(const Manifest &manifest,
                                        const Workload &workload) {
  std::vector<CostRow> rows;
  for (const auto &[op, cost] :
       llvm::zip_equal(manifest.forward().ops, workload.ops)) {
    const std::string name = withoutLayer(op);
    auto row = llvm::find_if(rows, [&](const CostRow &other) {
      return other.name == name && other.cost.kernels == cost.kernels;
    });
    if (row == rows.end())
      row = rows.insert(row, {name, 0, {0, 0, {}, cost.kernels}});
    ++row->ops;
    row->cost.bytes += cost.bytes;
    row->cost.macs += cost.macs;
    if (cost.cycles)
      row->cost.cycles = row->cost.cycles.value_or(0) + *cost.cycles;
  }
  return rows;
}

static void printRow(const CostRow &row, double allCycles) {
  std::string cycles = "-", share = "-";
  if (row.cost.cycles) {
    cycles = llvm::formatv("{0:f0}", *row.cost.cycles);
    share = llvm::formatv("{0:f1}%", *row.cost.cycles / allCycles * 100);
  }
  llvm::outs() << llvm::formatv("  {0,-34} {1,3} {2,13:f0} {3,13:f0} {4,12} "
                                "{5,6}  {6}\n",
                                row.name, row.ops, row.cost.bytes,
                                row.cost.macs, cycles, share,
                                llvm::join(row.cost.kernels, ", "));
}

static void printWorkload(const Manifest &manifest, const Workload &workload) {
  llvm::outs() << '\n' << workload.title << '\n';
  llvm::outs() << llvm::formatv("  {0,-34} {1,3} {2,13} {3,13} {4,12} {5,6}  "
                                "{6}\n",
                                "op", "ops", "bytes", "MACs", "cycles", "share",
                                "kernels");
  const double cycles = workload.cycles();
  CostRow total = {"total", 0, {0, 0, cycles, {}}};
  for (const CostRow &row : mergeLayers(manifest, workload)) {
    printRow(row, cycles);
    total.ops += row.ops;
    total.cost.bytes += row.cost.bytes;
    total.cost.macs += row.cost.macs;
  }
  printRow(total, cycles);
}

static ordered_json toJson(const Manifest &manifest, const Workload &workload) {
  const double cycles = workload.cycles();
  ordered_json ops = ordered_json::object();
  for (const auto &[name, cost] :
       llvm::zip_equal(manifest.forward().ops, workload.ops)) {
    ordered_json &op = ops[name] = {
        {"bytes", cost.bytes}, {"macs", cost.macs}, {"kernels", cost.kernels}};
    if (cost.cycles) {
      op["cycles"] = *cost.cycles;
      op["share"] = *cost.cycles / cycles;
    }
  }
  return {{"cycles", cycles}, {"ops", std::move(ops)}};
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

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
  const SequenceStep steps[] = {{context - 1, 1, callTokens},
                                {0, prompt, callTokens}};
  Workload workloads[] = {
      {"decode", "a decoded token at context " + std::to_string(context), {}},
      {"prefill", "a token of a prompt of " + std::to_string(prompt), {}}};
  KernelCycles cycles(options.file, target, cpu);
  for (const auto &[workload, step] : llvm::zip_equal(workloads, steps))
    for (size_t op = 0; op < manifest.forward().ops.size(); ++op)
      workload.ops.push_back(costOf(manifest, target, op, step, cycles));

  if (options.json) {
    ordered_json result = {
        {"model", manifest.model.name}, {"weights", manifest.weightFormats()},
        {"target", target.name},        {"cpu", cpu},
        {"context", context},           {"prompt", prompt}};
    for (const auto &[workload, step] : llvm::zip_equal(workloads, steps)) {
      result[workload.key] = toJson(manifest, workload);
      if (options.hasMachine())
        result[workload.key]["tokens_per_second"] =
            ceiling(options, manifest, workload, step);
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
    printWorkload(manifest, workload);
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
  for (const auto &[workload, step] : llvm::zip_equal(workloads, steps))
    llvm::outs() << llvm::formatv("  {0,-34} {1:f1} tokens/s\n", workload.title,
                                  ceiling(options, manifest, workload, step));
}

void qwen::addReport(CLI::App &app) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App *sub = app.add_subcommand(
      "report", "Print the bytes and multiplications of each op of a compiled "
                "model, and the cycles of its code in LLVM's model of a CPU");
  sub->add_option("FILE", options->file, "compiled model")->required();
  sub->add_option(
      "--target", options->target,
      "one of the file's targets, which qwen-run info lists; default is the "
      "best");
  sub->add_option(
      "--cpu", options->cpu,
      "CPU to model, by its LLVM name; default is the target's CPU; "
      "qwen-opt --list-targets names some");
  constexpr int64_t kMostPositions = int64_t{1} << 30;
  addNumber(sub, "--context", options->context,
            "positions that the decoded token attends to; default is the "
            "smaller of 512 and the model's context",
            1, kMostPositions);
  addNumber(sub, "--prompt", options->prompt,
            "tokens of the prompt; default is the smaller of 512 and the "
            "model's context",
            1, kMostPositions);
  CLI::Option *clock = addNumber(sub, "--ghz", options->gigahertz,
                                 "clock of the cores in GHz", 0.001, 1000);
  CLI::Option *cores =
      addNumber(sub, "--cores", options->cores, "number of cores", 1, 4096);
  CLI::Option *memory =
      addNumber(sub, "--gbps", options->gigabytes,
                "memory bandwidth of all cores together in GB/s (10^9 bytes)",
                0.001, 1e6);
  clock->needs(cores)->needs(memory);
  cores->needs(clock);
  memory->needs(clock);
  sub->add_flag("--json", options->json,
                "print JSON with one entry for each op");
  sub->callback([options] {
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
