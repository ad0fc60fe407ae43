//===- RunFlags.cpp - The flags of commands that run a model --------------===//

#include "Commands.h"
#include "Output.h"

#include "engine/CpuCount.h"

using namespace qwen;
using namespace qwen::run;

/// Time for the rest of the check after the last token: enough for several GiB,
/// and short for a user who waits for the end.
static constexpr double kFinishSeconds = 1;

/// The number of threads for the option -t `threads`: at most usableThreads,
/// with a line on standard error if that is fewer. 0 stays 0.
static int32_t limitThreads(int32_t threads) {
  const int32_t usable = usableThreads(threads);
  if (usable < threads)
    writeError("qwen-run: -t " + std::to_string(threads) +
               " is more than the physical cores that this process may use; "
               "it runs with " +
               std::to_string(usable) + "\n");
  return usable;
}

/// Turns WeightCheck::Background into Off if the file exceeds the free memory,
/// and reports this on standard error.
static WeightCheck limitCheck(WeightCheck check, const Artifact &artifact) {
  const WeightCheck usable = usableCheck(check, artifact.fileSize());
  if (usable != check)
    writeError("qwen-run: " + artifact.path() +
               " is larger than the free memory, so its weights are not "
               "checked; qwen-run info --check checks them\n");
  return usable;
}

std::shared_ptr<ThreadPool> RunFlags::pool() const {
  const int32_t count = anyThreads ? threads : limitThreads(threads);
  return std::make_shared<ThreadPool>(count ? count : defaultThreads());
}

EngineOptions RunFlags::options(const Model &model) const {
  EngineOptions options;
  options.check = limitCheck(check, model.artifact());
  options.lock = lock;
  return options;
}

void qwen::run::finishCheck(Model &model) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t left = model.engine().finishCheck(
      [start] { return secondsSince(start) >= kFinishSeconds; });
  if (left)
    writeError("qwen-run: " + std::to_string(left) + " of " +
               std::to_string(model.artifact().weightMiBs()) +
               " MiB of the weights of " + model.path() +
               " are not checked; --check now checks all before the start\n");
}
