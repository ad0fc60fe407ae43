//===- StepPace.cpp - Prompt tokens that a step may run -------------------===//

#include "engine/StepPace.h"

#include <algorithm>

using namespace qwen;

/// Less than the half second, because later positions take longer in
/// attention.
static constexpr double kPieceSeconds = 0.4;

/// How much longer a step may be than one without prompt tokens. Less than
/// twice, because measured times vary: with 1.8, a client saw 2.2 times.
static constexpr double kMostSlowdown = 1.6;

/// Steps with prompt tokens after which one without them is measured. A step
/// takes at most twice its time, so this costs less than 1/32 of prefill.
static constexpr int64_t kMeasureAfter = 32;

StepPace::StepPace(int64_t decoding, int64_t most, bool experts)
    : mostPrompt(most), hasExperts(experts),
      withoutPrompt(static_cast<size_t>(decoding) + 1) {}

double StepPace::decodeSeconds(int64_t decoding) const {
  while (decoding && withoutPrompt[static_cast<size_t>(decoding)] == 0)
    --decoding;
  return withoutPrompt[static_cast<size_t>(decoding)];
}

int64_t StepPace::promptTokens(int64_t decoding) const {
  if (!decoding && hasExperts)
    return mostPrompt;
  double most = kPieceSeconds;
  if (decoding) {
    const double without = decodeSeconds(decoding);
    if (without == 0 || unmeasured >= kMeasureAfter)
      return 0;
    most = kMostSlowdown * without;
  }
  const Sums &sums = decoding ? beside : alone;
  if (sums.seconds == 0)
    return leastPrompt();
  const double fitting =
      most * sums.tokens / sums.seconds - static_cast<double>(decoding);
  return std::min(mostPrompt,
                  std::max(leastPrompt(), static_cast<int64_t>(fitting)));
}

void StepPace::record(int64_t decoding, int64_t prompt, double taken) {
  if (prompt == 0) {
    double &average = withoutPrompt[static_cast<size_t>(decoding)];
    average = average == 0 ? taken : (average + taken) / 2;
    unmeasured = 0;
    return;
  }
  if (decoding)
    ++unmeasured;
  Sums &sums = decoding ? beside : alone;
  sums.seconds = sums.seconds / 2 + taken;
  sums.tokens = sums.tokens / 2 + static_cast<double>(decoding) +
                static_cast<double>(prompt);
}
