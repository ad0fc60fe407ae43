//===- CpuCount.cpp - Cores that this process may use ---------------------===//

#include "engine/CpuCount.h"

#include "qwen/Support/ControlGroups.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sched.h>
#include <sstream>

using namespace qwen;

std::vector<int> qwen::affinityCpus() {
  std::vector<int> cpus;
  // The Linux kernel rejects a mask that is smaller than its own.
  for (int size = 1024; size <= 1 << 20; size *= 2) {
    cpu_set_t *mask = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const bool known = mask && sched_getaffinity(0, bytes, mask) == 0;
    for (int cpu = 0; known && cpu < size; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, mask))
        cpus.push_back(cpu);
    CPU_FREE(mask);
    if (known)
      break;
  }
  return cpus;
}

std::set<int> qwen::parseCpuList(const std::string &text) {
  std::set<int> cpus;
  std::istringstream stream(text);
  std::string part;
  while (std::getline(stream, part, ',')) {
    char *end;
    const long first = strtol(part.c_str(), &end, 10);
    const long last = *end == '-' ? strtol(end + 1, nullptr, 10) : first;
    if (end == part.c_str())
      continue;
    for (long cpu = first; cpu <= last && cpu < 1 << 20; ++cpu)
      cpus.insert(static_cast<int>(cpu));
  }
  return cpus;
}

static std::string cpuFolder(int cpu, const std::string &root) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
}

/// The first of `cpus` of each core.
static std::vector<int> oneOfEachCore(const std::vector<int> &cpus,
                                      const std::string &root) {
  std::set<int> cores;
  std::vector<int> first;
  for (int cpu : cpus) {
    const std::string topology = cpuFolder(cpu, root) + "/topology/";
    auto siblings = firstLine(topology + "core_cpus_list");
    if (!siblings)
      siblings = firstLine(topology + "thread_siblings_list");
    const std::set<int> threads =
        siblings ? parseCpuList(*siblings) : std::set<int>{};
    // The first hardware thread identifies the core.
    if (cores.insert(threads.empty() ? cpu : *threads.begin()).second)
      first.push_back(cpu);
  }
  return first;
}

/// The number of cores that the control groups let run.
static int withinQuota(size_t cores, const std::string &root) {
  const double count =
      std::min(static_cast<double>(cores), std::ceil(controlGroupCpus(root)));
  return std::max(1, static_cast<int>(count));
}

int qwen::physicalCores(const std::vector<int> &cpus, const std::string &root) {
  return withinQuota(oneOfEachCore(cpus, root).size(), root);
}

std::vector<int> qwen::usableCpus(const std::vector<int> &cpus,
                                  const std::string &root) {
  std::vector<std::pair<int, long>> capacities;
  long fastest = 0;
  for (int cpu : cpus) {
    const auto text = firstLine(cpuFolder(cpu, root) + "/cpu_capacity");
    const long capacity = text ? strtol(text->c_str(), nullptr, 10) : 0;
    fastest = std::max(fastest, capacity);
    capacities.emplace_back(cpu, capacity);
  }
  std::optional<std::set<int>> hybrid;
  if (const auto text = firstLine(root + "/sys/devices/cpu_core/cpus")) {
    hybrid = parseCpuList(*text);
    // A mask of efficient cores alone leaves no choice.
    if (std::ranges::none_of(cpus,
                             [&](int cpu) { return hybrid->contains(cpu); }))
      hybrid.reset();
  }

  std::vector<int> fast;
  for (const auto &[cpu, capacity] : capacities)
    if (capacity * 3 >= fastest && (!hybrid || hybrid->contains(cpu)))
      fast.push_back(cpu);
  return oneOfEachCore(fast, root);
}

int qwen::usableCores(const std::vector<int> &cpus, const std::string &root) {
  return withinQuota(usableCpus(cpus, root).size(), root);
}

int qwen::defaultThreads() { return usableCores(affinityCpus()); }

int qwen::usableThreads(int wanted) {
  return std::min(wanted, physicalCores(affinityCpus()));
}
