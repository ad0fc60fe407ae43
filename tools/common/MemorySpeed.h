//===- MemorySpeed.h - How fast this machine reads memory -------*- C++ -*-===//

#ifndef QWEN_TOOLS_MEMORYSPEED_H
#define QWEN_TOOLS_MEMORYSPEED_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qwen {

/// A way to read memory.
struct ReadPattern {
  /// readStreams of `streams`.
  uint64_t (*read)(const uint8_t *base, size_t bytes, size_t distance);
  int streams;
  /// Bytes that are prefetched ahead; 0: none.
  size_t distance;
};

std::vector<ReadPattern> readPatterns();

/// Bytes a second at which `threads` threads read all of the memory once.
double readSpeed(const ReadPattern &pattern, const uint8_t *base, size_t bytes,
                 int32_t threads);

/// Bytes a second at which `threads` threads read memory, by the fastest of all
/// patterns, in about half a second. The memory is larger than caches, unless a
/// quarter of the free memory is less. Throws Error if there is none.
double memorySpeed(int32_t threads);

/// The same with a thread for each of these logical CPUs, on which they stay,
/// and memory of a NUMA node.
double nodeSpeed(const std::vector<int> &cpus, int node);

} // namespace qwen

#endif // QWEN_TOOLS_MEMORYSPEED_H
