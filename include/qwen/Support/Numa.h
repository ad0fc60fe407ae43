//===- Numa.h - Where threads run and memory lies ---------------*- C++ -*-===//
//
// System calls of the Linux kernel, without libnuma. Both are hints: where the
// system refuses, threads and memory stay anywhere.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_NUMA_H
#define QWEN_SUPPORT_NUMA_H

#include <cstddef>
#include <span>

namespace qwen {

/// The calling thread, and threads that it starts, run on these logical CPUs
/// alone.
void bindThread(std::span<const int> cpus);

/// Memory pages that begin at `base`, a multiple of the memory page, come from
/// a NUMA node at their first use, or from another one if this one has none.
void preferNode(void *base, size_t bytes, int node);

} // namespace qwen

#endif // QWEN_SUPPORT_NUMA_H
