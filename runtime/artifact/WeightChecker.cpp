//===- WeightChecker.cpp - Finds damaged weights --------------------------===//

#include "artifact/WeightChecker.h"

#include "qwen/ABI/ControlGroups.h"
#include "qwen/ABI/Error.h"
#include "qwen/ABI/Process.h"

#include <chrono>
#include <sys/resource.h>
#include <system_error>

using namespace qwen;

/// So many MiB are checked in the time that a thread takes to start and end.
static constexpr uint64_t kFewMiBs = 8;

/// Memory has no priorities: with a pause after each MiB the thread takes at
/// most about 1 GB/s, a small part of what any machine reads.
static constexpr std::chrono::milliseconds kPause{1};

WeightCheck qwen::usableCheck(WeightCheck wanted, uint64_t bytes) {
  if (wanted != WeightCheck::Background)
    return wanted;
  const std::optional<uint64_t> free = freeMemory();
  return free && bytes > *free ? WeightCheck::Off : wanted;
}

WeightChecker::WeightChecker(const Artifact &checkedArtifact)
    : artifact(checkedArtifact) {
  if (artifact.weightMiBs() <= kFewMiBs || !start())
    check({});
}

WeightChecker::~WeightChecker() { stop(); }

void WeightChecker::throwIfDamaged() const {
  if (damaged.load(std::memory_order_acquire))
    throw Error(damage);
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
  // Signals are for the thread that runs the program.
  const SignalsBlocked blocked;
  try {
    thread = std::thread([this] { serve(); });
    return true;
  } catch (const std::system_error &) {
    return false;
  }
}

void WeightChecker::serve() {
  // On Linux, of this thread alone. Not SCHED_IDLE: on a machine where others
  // use all CPUs, such a thread takes a second or two to see that it shall end.
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
