//===- CpuCount.h - Cores that this process may use -------------*- C++ -*-===//
//
// How many threads serve a model best: one for each physical performance core
// that the affinity mask and the control groups let this process use.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_CPUCOUNT_H
#define QWEN_RUNTIME_ENGINE_CPUCOUNT_H

#include <string>
#include <vector>

namespace qwen {

/// Numbers of the logical CPUs in this thread's affinity mask, ascending.
std::vector<int> affinityCpus();

/// Physical cores among `cpus`, at most the processor quota of the control
/// groups rounded up, at least 1. Siblings of one core count once. `root`
/// stands before "/sys" and "/proc"; empty but in tests.
int physicalCores(const std::vector<int> &cpus, const std::string &root = "");

/// physicalCores of the performance cores: of cores of several speeds
/// (cpu_capacity, or the hybrid cores that the kernel lists in cpu_core), those
/// below a third of the fastest are left out.
int usableCores(const std::vector<int> &cpus, const std::string &root = "");

/// usableCores(affinityCpus()).
int defaultThreads();

/// `wanted`, but at most physicalCores(affinityCpus()): more threads only take
/// cores from each other.
int usableThreads(int wanted);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_CPUCOUNT_H
