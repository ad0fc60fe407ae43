//===- WeightChecker.h - Finds damaged weights ------------------*- C++ -*-===//
//
// Compares the weights of a model with their checksums while the model runs.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ARTIFACT_WEIGHTCHECKER_H
#define QWEN_RUNTIME_ARTIFACT_WEIGHTCHECKER_H

#include "artifact/Artifact.h"
#include "engine/EngineOptions.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace qwen {

/// `wanted`, or Off in place of Background if a file of `bytes` is larger than
/// the free memory: the check would evict what the model needs.
WeightCheck usableCheck(WeightCheck wanted, uint64_t bytes);

/// Checks the weights of an artifact on a thread of low priority.
class WeightChecker {
public:
  /// Starts the thread. If the weights are few or the system gives no thread,
  /// checks them before it returns. `artifact` must outlive the checker.
  explicit WeightChecker(const Artifact &artifact);
  /// Stops the thread.
  ~WeightChecker();
  WeightChecker(const WeightChecker &) = delete;
  WeightChecker &operator=(const WeightChecker &) = delete;

  /// Throws Error if damage was found so far. Only reads a flag.
  void throwIfDamaged() const;

  /// Stops the thread and checks the rest until `enough` returns true. Returns
  /// the number of unchecked MiB. Throws Error if damage was found.
  uint64_t finish(const std::function<bool()> &enough = {});

private:
  /// Calls Artifact::checkWeights from `next` on and keeps its Error.
  void check(const std::function<bool()> &enough);
  /// Starts the thread. Returns false if the system gives none.
  bool start();
  void serve();
  void stop();

  const Artifact &artifact;
  /// The next MiB to check. While the thread runs, only it may access it.
  uint64_t next = 0;
  /// The message about the damage, set before `damaged`.
  std::string damage;
  std::atomic<bool> damaged{false};
  std::atomic<bool> stopping{false};
  std::thread thread;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ARTIFACT_WEIGHTCHECKER_H
