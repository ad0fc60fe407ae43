//===- WeightChecker.cpp - Finds damaged weights --------------------------===//

#include "artifact/WeightChecker.h"

#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/InputError.h"
#include "qwen/Support/Process.h"

#include <chrono>
#include <sys/resource.h>

using namespace qwen;

/// MiB that can be checked in the time that a thread takes to start and end.
static constexpr uint64_t kFewMiBs = 8;

/// Pause after each MiB. Memory has no priorities; with the pause the thread
/// reads at most about 1 GB/s, a small part of any machine's bandwidth.
static constexpr std::chrono::milliseconds kPause{1};

WeightCheck qwen::usableCheck(WeightCheck wanted, uint64_t bytes) {
  return wanted == WeightCheck::Background && exceedsFreeMemory(bytes)
             ? WeightCheck::Off
             : wanted;
}

WeightChecker::WeightChecker(const Artifact &checkedArtifact)
    : artifact(checkedArtifact) {
  if (artifact.weightMiBs() <= kFewMiBs || !start())
    check({});
}

WeightChecker::~WeightChecker() { stop(); }

void WeightChecker::throwIfDamaged() const {
  if (damaged.load(std::memory_order_acquire))
    throw InputError(damage);
}

uint64_t WeightChecker::finish(const std::function<bool()> &enough) {
  stop();
  check(enough);
  throwIfDamaged();
  return artifact.weightMiBs() - next;
}

void WeightChecker::check(const std::function<bool()> &enough) {
  if (damaged)
    return;
  try {
    next = artifact.checkWeights(next, enough);
  } catch (const Error &error) {
    damage = error.what();
    damaged.store(true, std::memory_order_release);
  }
}

bool WeightChecker::start() {
  try {
    thread = startThread("checks weights", [this] { serve(); });
    return true;
  } catch (const Error &) {
    return false;
  }
}

void WeightChecker::serve() {
  // On Linux this sets the priority of this thread alone. With SCHED_IDLE the
  // thread would need a second or two to stop on a busy machine.
  setpriority(PRIO_PROCESS, 0, 19);
  check([this] {
    std::this_thread::sleep_for(kPause);
    return stopping.load(std::memory_order_relaxed);
  });
}

void WeightChecker::stop() {
  stopping = true;
  if (thread.joinable())
    thread.join();
}
