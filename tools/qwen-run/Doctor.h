//===- Doctor.h - What changes the speed of this machine --------*- C++ -*-===//

#ifndef QWEN_RUN_DOCTOR_H
#define QWEN_RUN_DOCTOR_H

#include "Groups.h"

#include "qwen/ABI/CpuFeatures.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qwen::run {

/// The machine as this process sees it. Tests make their own.
struct Machine {
  /// A prefix of "/sys" and "/proc".
  std::string root;
  CpuFeatureSet features;
  /// affinityCpus().
  std::vector<int> cpus;
  /// Bytes that this process may lock (ulimit -l).
  uint64_t lockableBytes;
  /// Bytes a second at which a number of threads reads memory.
  std::function<double(int32_t threads)> memorySpeed;
  NodeSpeedFn nodeSpeed;
};

/// The machine that runs this program.
Machine thisMachine();

/// What a check found.
struct Finding {
  /// What was looked at: "huge pages".
  std::string check;
  std::string found;
  /// What to do; empty if there is nothing to gain.
  std::string advice;
};

/// The findings of all checks, in the order of their table. A check of a file
/// that the system lacks says so.
std::vector<Finding> examine(const Machine &machine);

} // namespace qwen::run

#endif // QWEN_RUN_DOCTOR_H
