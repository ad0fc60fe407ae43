//===- Limits.cpp - Limits that the system sets to a compile --------------===//

#include "Limits.h"

#include "PrintSummary.h"

#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"

#include <fstream>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace qwen;

/// Address space of a compile with one malloc arena, without the mapped weight
/// files and the stacks of threads: 50 MiB for models/stories, and a reserve.
static constexpr uint64_t kWorkBytes = uint64_t{192} << 20;

/// Bytes of the stacks of all threads of a compile.
static uint64_t stackBytes() {
  pthread_attr_t defaults;
  size_t bytes = size_t{8} << 20;
  if (pthread_getattr_default_np(&defaults) == 0) {
    pthread_attr_getstacksize(&defaults, &bytes);
    pthread_attr_destroy(&defaults);
  }
  return uint64_t{machineThreads()} * bytes;
}

/// Throws Error if a limit (ulimit -v) leaves too little address space.
/// Otherwise the compiler's libraries would abort the process. Under a limit,
/// all threads share one malloc arena: glibc reserves up to 128 MiB for each
/// other one, so the need would depend on the number of cores.
static void checkAddressSpace(const std::string &checkpoint,
                              uint64_t mappedBytes) {
  rlimit limit;
  uint64_t pages = 0;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      !(std::ifstream("/proc/self/statm") >> pages))
    return;
  mallopt(M_ARENA_MAX, 1);
  const uint64_t needed = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) +
                          kWorkBytes + stackBytes() +
                          weightFileBytes(checkpoint) + mappedBytes;
  if (limit.rlim_cur < needed)
    throw Error("compiling " + checkpoint + " needs about " + withUnit(needed) +
                    " of address space when ulimit -v allows " +
                    withUnit(limit.rlim_cur),
                ErrorKind::NoMemory);
}

/// Anonymous memory of a compile: for the shapes of Qwen2.5-0.5B 54 MiB with 2
/// threads and 143 with 64, and a reserve. Weights are mapped and take no
/// anonymous memory.
static constexpr uint64_t kAnonymousBytes = uint64_t{192} << 20;

/// Throws Error if a control group would kill the process while it compiles.
static void checkMemory(const std::string &checkpoint) {
  if (const auto limit = controlGroupMemory();
      limit && *limit < kAnonymousBytes)
    throw Error("compiling " + checkpoint + " needs about " +
                    withUnit(kAnonymousBytes) +
                    " of memory when its control group allows " +
                    withUnit(*limit),
                ErrorKind::NoMemory);
}

/// Bytes of the largest file that Halide writes to memory: below 20 KB, and a
/// reserve.
static constexpr uint64_t kCodeFileBytes = uint64_t{256} << 10;

/// Throws Error if a limit (ulimit -f) leaves no room for code. Otherwise
/// Halide would end the process with its own message.
static void checkFileSize(const std::string &checkpoint) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kCodeFileBytes)
    throw Error("compiling " + checkpoint + " needs files of up to " +
                    withUnit(kCodeFileBytes) + " when ulimit -f allows " +
                    withUnit(limit.rlim_cur),
                ErrorKind::NoMemory);
}

void qwen::checkLimits(const std::string &checkpoint, uint64_t mappedBytes) {
  checkAddressSpace(checkpoint, mappedBytes);
  checkMemory(checkpoint);
  checkFileSize(checkpoint);
}
