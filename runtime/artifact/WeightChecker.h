//===- WeightChecker.h - Finds damaged weights ------------------*- C++ -*-===//
//
// Compares the weights of a model with their checksums while the model runs.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ARTIFACT_WEIGHTCHECKER_H
#define QWEN_RUNTIME_ARTIFACT_WEIGHTCHECKER_H

#include "artifact/Artifact.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace qwen {

/// When an engine compares the weights with their checksums.
enum class WeightCheck {
  /// While the model runs, on a thread of low priority.
  Background,
  /// Before the model runs.
  Now,
  Off,
};

/// `wanted`, but Off for Background where a file of `bytes` is larger than the
/// free memory: the check would drive out of it what the model needs.
WeightCheck usableCheck(WeightCheck wanted, uint64_t bytes);

/// Reads the weights of an artifact on a thread of low priority.
class WeightChecker {
public:
  /// Starts the thread. Checks the weights itself where they are few or the
  /// system gives no thread. `artifact` must outlive the checker.
  explicit WeightChecker(const Artifact &artifact);
  /// Stops the thread.
  ~WeightChecker();
  WeightChecker(const WeightChecker &) = delete;
  WeightChecker &operator=(const WeightChecker &) = delete;

  /// Throws Error where damage was found so far. Costs no more than reading a
  /// flag.
  void throwIfDamaged() const;

  /// Stops the thread and checks the rest itself, until `enough` returns true.
  /// Returns the MiB that nobody has checked. Throws Error where damage was
  /// found.
  uint64_t finish(const std::function<bool()> &enough = {});

private:
  /// Artifact::checkWeights from `next` on; keeps the Error that it throws.
  void check(const std::function<bool()> &enough);
  /// Starts the thread; false where the system has none.
  bool start();
  void serve();
  void stop();

  const Artifact &artifact;
  /// The next MiB; the thread's own while it runs.
  uint64_t next = 0;
  /// What is wrong, set before `damaged`.
  std::string damage;
  std::atomic<bool> damaged{false};
  std::atomic<bool> stopping{false};
  std::thread thread;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ARTIFACT_WEIGHTCHECKER_H
