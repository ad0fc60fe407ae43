//===- Doctor.cpp - What changes the speed of this machine ----------------===//

#include "Doctor.h"

#include "CommandLine.h"
#include "Commands.h"
#include "JsonOutput.h"
#include "MemorySpeed.h"
#include "Output.h"
#include "engine/CoreGroups.h"
#include "engine/CpuCount.h"
#include "engine/ThreadPool.h"

#include "qwen/ABI/Isas.h"
#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sys/resource.h>

using namespace qwen;
using namespace qwen::run;

Machine qwen::run::thisMachine() {
  rlimit lockable = {};
  getrlimit(RLIMIT_MEMLOCK, &lockable);
  return {"",          hostFeatures(), affinityCpus(), lockable.rlim_cur,
          memorySpeed, nodeSpeed};
}

namespace {
/// The result of a check, and advice where something limits speed.
struct Report {
  std::string found;
  std::string advice = {};
};
} // namespace

//===----------------------------------------------------------------------===//
// Files of the system
//===----------------------------------------------------------------------===//

static std::string cpuFile(const Machine &machine, const std::string &file) {
  return machine.root + "/sys/devices/system/cpu/" + file;
}

/// The value of a line "KEY : VALUE" of a file of /proc.
static std::optional<std::string> lineOf(const std::string &path,
                                         const std::string &key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos ||
        line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key)
      continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    return first == line.npos ? "" : line.substr(first);
  }
  return std::nullopt;
}

/// Bytes of a line of /proc/meminfo.
static std::optional<uint64_t> memoryOf(const Machine &machine,
                                        const std::string &key) {
  const auto text = lineOf(machine.root + "/proc/meminfo", key);
  if (!text)
    return std::nullopt;
  return strtoull(text->c_str(), nullptr, 10) * 1024;
}

static std::string sizeText(uint64_t bytes) {
  char text[40];
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  snprintf(text, sizeof(text), mebibytes < 1024 ? "%.0f MiB" : "%.1f GiB",
           mebibytes < 1024 ? mebibytes : mebibytes / 1024);
  return text;
}

static std::string count(size_t number, const std::string &what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

/// The different first lines of a file of each CPU that this process may use.
static std::set<std::string> valuesOfCpus(const Machine &machine,
                                          const std::string &file) {
  std::set<std::string> values;
  for (int cpu : machine.cpus)
    if (const auto value = firstLine(
            cpuFile(machine, "cpu" + std::to_string(cpu) + "/" + file)))
      values.insert(*value);
  return values;
}

static std::string joined(const std::set<std::string> &values) {
  std::string text;
  for (const std::string &value : values)
    text += (text.empty() ? "" : ", ") + printable(value);
  return text;
}

//===----------------------------------------------------------------------===//
// Processors
//===----------------------------------------------------------------------===//

static Report checkCpu(const Machine &machine) {
  const std::string cpus = machine.root + "/proc/cpuinfo";
  const auto name = lineOf(cpus, "model name");
  const auto part = lineOf(cpus, "CPU part");
  return {printable(name   ? *name
                    : part ? "part " + *part
                           : "unknown") +
          ", " + std::string(archName(hostArch())) + " with " +
          toString(machine.features)};
}

static Report checkLevel(const Machine &machine) {
  const IsaInfo *best = nullptr;
  for (const IsaInfo &isa : kIsas)
    if (isa.arch == hostArch() && machine.features.containsAll(isa.features))
      best = &isa;
  if (!best)
    return {"none that kernels are written for",
            "run models on a CPU with " +
                toString(leastFeatures(hostArch()) - machine.features) +
                ", which this one lacks"};
  const bool hasDot = machine.features.contains(CpuFeature::AVXVNNI) ||
                      machine.features.contains(CpuFeature::AVX512VNNI) ||
                      machine.features.contains(CpuFeature::DotProd);
  const std::string found =
      std::string(best->name) +
      (hasDot ? "" : ", without instructions for dot products of bytes");
  // An operating system may hide what the processor has.
  const auto flags = lineOf(machine.root + "/proc/cpuinfo", "flags");
  if (flags && !machine.features.contains(CpuFeature::AVX512F) &&
      (*flags + " ").find(" avx512f ") != std::string::npos)
    return {found, "the processor has AVX-512 and the system does not grant "
                   "it: boot without clearcpuid and noxsave"};
  return {found};
}

static Report checkCores(const Machine &machine) {
  const int physical = physicalCores(machine.cpus, machine.root);
  const int usable = usableCores(machine.cpus, machine.root);
  const std::string found = count(static_cast<size_t>(usable), "core") +
                            ", which is the default of "
                            "-t";
  return {physical == usable ? found
                             : found + "; " +
                                   count(static_cast<size_t>(physical - usable),
                                         "slower core") +
                                   " left out"};
}

static Report checkThreads(const Machine &machine) {
  const auto active = firstLine(cpuFile(machine, "smt/active"));
  if (!active)
    return {"unknown"};
  if (*active != "1")
    return {"one hardware thread a core"};
  return {"several hardware threads a core, of which a model uses one: they "
          "share what computes"};
}

static Report checkAffinity(const Machine &machine) {
  const auto online = firstLine(cpuFile(machine, "online"));
  const size_t all =
      online ? parseCpuList(*online).size() : machine.cpus.size();
  if (machine.cpus.size() >= all)
    return {"all " + count(all, "CPU") + " of the machine"};
  return {std::to_string(machine.cpus.size()) + " of " + count(all, "CPU"),
          "start it without taskset, or give the container or unit more CPUs "
          "(cpuset, AllowedCPUs)"};
}

static Report checkQuota(const Machine &machine) {
  const double quota = controlGroupCpus(machine.root);
  if (std::isinf(quota))
    return {"none"};
  char text[60];
  snprintf(text, sizeof(text), "%.4g CPUs", quota);
  if (quota >= static_cast<double>(machine.cpus.size()))
    return {text};
  return {text, "threads stand still when it is used up: raise it (CPUQuota, "
                "--cpus) to the number of cores, or run -t with fewer threads"};
}

static Report checkLoad(const Machine &machine) {
  const auto line = firstLine(machine.root + "/proc/loadavg");
  if (!line)
    return {"unknown"};
  const double load = strtod(line->c_str(), nullptr);
  char text[60];
  snprintf(text, sizeof(text), "%.1f threads want to run", load);
  if (load < 0.5)
    return {text};
  return {text, "stop other programs, or run -t with fewer threads than cores"};
}

//===----------------------------------------------------------------------===//
// Clock
//===----------------------------------------------------------------------===//

static Report checkGovernor(const Machine &machine) {
  const auto governors = valuesOfCpus(machine, "cpufreq/scaling_governor");
  if (governors.empty())
    return {"not readable here, as in most virtual machines"};
  const auto drivers = valuesOfCpus(machine, "cpufreq/scaling_driver");
  const auto preferences =
      valuesOfCpus(machine, "cpufreq/energy_performance_preference");
  const std::string found =
      joined(governors) + " by " + joined(drivers) +
      (preferences.empty() ? "" : ", preference " + joined(preferences));
  // "powersave" of drivers with a preference follows the load.
  const bool isSlow =
      (preferences.empty() && governors.contains("powersave")) ||
      preferences.contains("power");
  return {found, isSlow ? "sudo cpupower frequency-set -g performance" : ""};
}

static Report checkTurbo(const Machine &machine) {
  const auto intel = firstLine(cpuFile(machine, "intel_pstate/no_turbo"));
  const auto other = firstLine(cpuFile(machine, "cpufreq/boost"));
  if (!intel && !other)
    return {"not readable here, as in most virtual machines"};
  if (intel && *intel == "1")
    return {"off", "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/"
                   "no_turbo"};
  if (!intel && *other == "0")
    return {"off", "echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost"};
  return {"on"};
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static Report checkHugePages(const Machine &machine) {
  const auto modes =
      firstLine(machine.root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (!modes)
    return {"not supported by this kernel"};
  const size_t begin = modes->find('['), end = modes->find(']');
  const std::string mode = begin < end && end != modes->npos
                               ? modes->substr(begin + 1, end - begin - 1)
                               : *modes;
  if (mode != "never")
    return {printable(mode)};
  return {"never", "echo madvise | sudo tee /sys/kernel/mm/"
                   "transparent_hugepage/enabled"};
}

static Report checkMemory(const Machine &machine) {
  const auto total = memoryOf(machine, "MemTotal");
  const auto free = freeMemory(machine.root);
  const auto limit = controlGroupMemory(machine.root);
  if (!total || !free)
    return {"unknown"};
  const std::string found =
      sizeText(*total) + ", of which a program can get " + sizeText(*free);
  if (limit && *limit < *total)
    return {found + "; the control group allows " + sizeText(*limit),
            "weights beyond the limit are read from the disk for each token: "
            "raise it (MemoryMax, --memory) for larger models"};
  return {found};
}

static Report checkNodes(const Machine &machine) {
  const auto online =
      firstLine(machine.root + "/sys/devices/system/node/online");
  const size_t nodes = online ? parseCpuList(*online).size() : 1;
  if (nodes < 2)
    return {count(1, "node")};
  return {count(nodes, "node"),
          "serve with --replicas auto; for one answer at a time, numactl "
          "--interleave=all qwen-run ... reads weights from all of them"};
}

/// "numactl -C 0-7 -m 0" for each group, as users wrote it by hand.
static std::string numactlOf(const std::vector<CoreGroup> &groups) {
  std::string text;
  for (const CoreGroup &group : groups)
    text += (text.empty() ? "" : "; ") + std::string("numactl -C ") +
            cpuListText(group.cpus) + " -m " + std::to_string(group.node);
  return text;
}

/// What --numa auto does with these groups; empty if they have one node.
static std::string weightsOf(const Machine &machine,
                             const std::vector<CoreGroup> &groups) {
  const std::optional<double> others =
      speedOfOtherNodes(groups, machine.nodeSpeed);
  if (!others)
    return "";
  char text[120];
  snprintf(
      text, sizeof(text),
      "; another node's memory has %.2f of the speed, so %s of the weights",
      *others,
      isMuchSlower(*others) ? "each node gets a copy"
                            : "all nodes read one copy");
  return text;
}

/// What --replicas auto does, and what it replaces. Groups of 8 cores are for
/// weights that fit in the caches: threads then wait for each other, not for
/// memory.
static Report checkGroups(const Machine &machine) {
  constexpr size_t kCoresOfGroup = 8;
  const std::vector<CorePlace> cores =
      corePlaces(machine.cpus, ThreadPool::kMaxThreads, machine.root);
  if (cores.empty())
    return {"unknown"};
  const int nodes = nodesOf(cores);
  const std::vector<CoreGroup> groups = coreGroups(cores, nodes);
  std::string found =
      nodes == 1
          ? "auto is one engine on " + count(cores.size(), "core")
          : "auto is " + std::to_string(nodes) + " engines, in place of " +
                numactlOf(groups) + weightsOf(machine, groups);
  const auto small = static_cast<int>(cores.size() / kCoresOfGroup);
  if (small > nodes)
    found += "; for models that fit in the caches, --replicas " +
             std::to_string(small) + " replaces " +
             numactlOf(coreGroups(cores, small));
  return {found};
}

static Report checkBandwidth(const Machine &machine) {
  const int threads = usableCores(machine.cpus, machine.root);
  const double speed = machine.memorySpeed(threads);
  char text[160];
  snprintf(text, sizeof(text),
           "%.1f GB/s with %s: weights of 1 GB decode at most %.0f tokens/s",
           speed * 1e-9, count(static_cast<size_t>(threads), "thread").c_str(),
           speed * 1e-9);
  // Two channels of slow DDR4 give twice that.
  constexpr double kSlow = 15e9;
  if (speed >= kSlow)
    return {text};
  return {text, "fill all memory channels, and stop what else reads memory, "
                "on a shared machine other virtual machines"};
}

static Report checkSwap(const Machine &machine) {
  const auto total = memoryOf(machine, "SwapTotal");
  const auto free = memoryOf(machine, "SwapFree");
  if (!total || !free)
    return {"unknown"};
  if (*total == 0)
    return {"none"};
  const uint64_t used = *total - std::min(*free, *total);
  const std::string found =
      sizeText(*total) + ", of which " + sizeText(used) + " are used";
  // A little is always there.
  if (used * 10 < *total)
    return {found};
  return {found, "memory is short: run a smaller model or format, or keep "
                 "weights in memory with --lock"};
}

static Report checkLock(const Machine &machine) {
  if (machine.lockableBytes == RLIM_INFINITY)
    return {"all memory"};
  const auto total = memoryOf(machine, "MemTotal");
  if (total && machine.lockableBytes >= *total)
    return {"all memory"};
  return {sizeText(machine.lockableBytes) +
          "; --lock of a larger model needs ulimit -l unlimited"};
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

namespace {
struct Check {
  const char *name;
  Report (*look)(const Machine &machine);
};
} // namespace

static constexpr Check kChecks[] = {
    {"cpu", checkCpu},           {"kernels", checkLevel},
    {"cores", checkCores},       {"threads", checkThreads},
    {"affinity", checkAffinity}, {"quota", checkQuota},
    {"load", checkLoad},         {"governor", checkGovernor},
    {"turbo", checkTurbo},       {"huge pages", checkHugePages},
    {"memory", checkMemory},     {"bandwidth", checkBandwidth},
    {"numa", checkNodes},        {"replicas", checkGroups},
    {"swap", checkSwap},         {"lockable", checkLock},
};

std::vector<Finding> qwen::run::examine(const Machine &machine) {
  std::vector<Finding> findings;
  for (const Check &check : kChecks) {
    Report report = check.look(machine);
    findings.push_back(
        {check.name, std::move(report.found), std::move(report.advice)});
  }
  return findings;
}

static void doctor(bool json) {
  const std::vector<Finding> findings = examine(thisMachine());
  std::vector<JsonText> all;
  std::string text;
  for (const auto &[check, found, advice] : findings) {
    JsonMember advised = {"advice", JsonText{"null"}};
    if (!advice.empty())
      advised.second = advice;
    all.push_back(jsonObject({{"check", check}, {"found", found}, advised}));
    std::string name = check;
    name.resize(11, ' ');
    text += name + found + "\n";
    text += advice.empty() ? "" : "        ->  " + advice + "\n";
  }
  const auto advised = std::ranges::count_if(
      findings, [](const Finding &finding) { return !finding.advice.empty(); });
  text += advised ? "" : "Nothing to do.\n";
  if (json)
    writeJson(jsonArray(all), 2);
  else
    writeOut(text);
}

void qwen::run::addDoctor(const Command &program) {
  const auto json = std::make_shared<bool>(false);
  const Command sub = program.addCommand(
      "doctor", "Say what of this machine changes speed, and what to do");
  sub.addFlag("--json", *json, "Print JSON");
  sub.onRun([json] { doctor(*json); });
}
