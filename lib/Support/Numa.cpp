//===- Numa.cpp - Where threads run and memory lies -----------------------===//

#include "qwen/Support/Numa.h"

#include <algorithm>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

using namespace qwen;

void qwen::bindThread(std::span<const int> cpus) {
  const int size = cpus.empty() ? 0 : std::ranges::max(cpus) + 1;
  cpu_set_t *mask = CPU_ALLOC(size);
  if (size == 0 || !mask)
    return CPU_FREE(mask);
  const size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, mask);
  for (int cpu : cpus)
    CPU_SET_S(cpu, bytes, mask);
  sched_setaffinity(0, bytes, mask);
  CPU_FREE(mask);
}

void qwen::preferNode(void *base, size_t bytes, int node) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(static_cast<size_t>(node / kBits) + 1);
  mask.back() = 1UL << (node % kBits);
  // The Linux kernel ignores the last bit of the number.
  syscall(SYS_mbind, base, bytes, MPOL_PREFERRED, mask.data(),
          mask.size() * kBits + 1, 0);
}
