//===- CoreGroups.h - Cores that run an engine each -------------*- C++ -*-===//
//
// Threads of a call wait for each other, and more threads wait longer. Memory
// of another NUMA node is slower. So the cores of a large machine may be
// divided into groups, each with an engine of its own (docs/decisions/0046).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_COREGROUPS_H
#define QWEN_RUNTIME_ENGINE_COREGROUPS_H

#include <span>
#include <string>
#include <vector>

namespace qwen {

/// Where a core lies. A number that the system does not tell is 0.
struct CorePlace {
  /// A logical CPU of the core.
  int cpu = 0;
  /// NUMA node and socket.
  int node = 0, package = 0;
  /// The first CPU of those that share the last cache, and of its cluster.
  int cache = 0, cluster = 0;
};

/// Cores of one NUMA node that run an engine, one thread each.
struct CoreGroup {
  /// A logical CPU of each core.
  std::vector<int> cpus;
  int node = 0;
};

/// The places of usableCpus(cpus, root), at most usableCores(cpus, root) and at
/// most `most`: nodes, sockets, caches and clusters follow one another. Tests
/// set `root`, a prefix of "/sys" and "/proc".
std::vector<CorePlace> corePlaces(const std::vector<int> &cpus, int most,
                                  const std::string &root = "");

/// Divides cores, in the order of corePlaces, into `count` groups of
/// neighbours, as equal as possible. No group crosses a node. Throws Error if
/// there are fewer cores than groups, or fewer groups than nodes.
std::vector<CoreGroup> coreGroups(std::span<const CorePlace> cores, int count);

/// The number of NUMA nodes of `cores`. So many groups read the weights of a
/// token once in each node; more groups would read them more often.
int nodesOf(std::span<const CorePlace> cores);

/// "0-3,8": the numbers as the Linux kernel and numactl write them.
std::string cpuListText(std::vector<int> cpus);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_COREGROUPS_H
