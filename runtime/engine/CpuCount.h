//===- CpuCount.h - Cores that this process may use -------------*- C++ -*-===//
//
// A model runs fastest with one thread for each physical performance core that
// the affinity mask and the control groups let this process use.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_CPUCOUNT_H
#define QWEN_RUNTIME_ENGINE_CPUCOUNT_H

#include <set>
#include <string>
#include <vector>

namespace qwen {

/// Numbers of the logical CPUs in this thread's affinity mask, ascending.
std::vector<int> affinityCpus();

/// The numbers of a list of the Linux kernel, such as "0-3,8,10-11".
std::set<int> parseCpuList(const std::string &text);

/// Number of physical cores among `cpus`: at most the processor quota of the
/// control groups rounded up, at least 1. Siblings of one core count once.
/// Tests set `root`, a prefix of "/sys" and "/proc".
int physicalCores(const std::vector<int> &cpus, const std::string &root = "");

/// physicalCores without the efficient cores: cores below a third of the
/// fastest core's cpu_capacity, and hybrid cores that the Linux kernel does not
/// list in cpu_core.
int usableCores(const std::vector<int> &cpus, const std::string &root = "");

/// The first of `cpus` of each core that usableCores counts, ascending; all of
/// them, whatever a quota says.
std::vector<int> usableCpus(const std::vector<int> &cpus,
                            const std::string &root = "");

/// usableCores(affinityCpus()).
int defaultThreads();

/// The smaller of `wanted` and physicalCores(affinityCpus()). More threads
/// would only compete for the cores.
int usableThreads(int wanted);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_CPUCOUNT_H
