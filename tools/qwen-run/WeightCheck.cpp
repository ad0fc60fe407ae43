//===- WeightCheck.cpp - When the weights are checked ---------------------===//

#include "Commands.h"
#include "Output.h"

using namespace qwen;
using namespace qwen::run;

/// Time for the rest of the check after the last token: enough for several GiB,
/// and short for a user who waits for the end.
static constexpr double kFinishSeconds = 1;

WeightCheck qwen::run::limitCheck(WeightCheck check, const Artifact &artifact) {
  const WeightCheck usable = usableCheck(check, artifact.fileSize());
  if (usable != check)
    writeError("qwen-run: " + artifact.path() +
               " is larger than the free memory, so its weights are not "
               "checked; qwen-run info --check checks them\n");
  return usable;
}

void qwen::run::finishCheck(Engine &engine, const Artifact &artifact) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t left = engine.finishCheck(
      [start] { return secondsSince(start) >= kFinishSeconds; });
  if (left)
    writeError("qwen-run: " + std::to_string(left) + " of " +
               std::to_string(artifact.weightMiBs()) +
               " MiB of the weights of " + artifact.path() +
               " are not checked; --check now checks all before the start\n");
}
