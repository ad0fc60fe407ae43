//===- StepPace.cpp - Prompt tokens that a step may run -------------------===//

#include "engine/StepPace.h"

#include <algorithm>

using namespace qwen;

/// Of the half second; the rest is for what is not measured yet, such as the
/// longer attention of later positions.
static constexpr double kPieceSeconds = 0.4;

/// Steps with prompt tokens after which one without them is measured. A step
/// takes at most twice its time, so this costs less than 1/32 of prefill.
static constexpr int64_t kMeasureAfter = 32;

/// The number of prompt tokens grows by at most this factor from step to step,
/// because the time of few tokens says little of many.
static constexpr int64_t kGrowth = 4;

StepPace::StepPace(size_t decoding, int64_t most)
    : mostPrompt(most), withoutPrompt(decoding + 1) {}

double StepPace::decodeSeconds(size_t decoding) const {
  while (decoding && withoutPrompt[decoding] == 0)
    --decoding;
  return withoutPrompt[decoding];
}

int64_t StepPace::promptTokens(size_t decoding) const {
  const bool mixed = decoding != 0;
  double seconds = kPieceSeconds;
  if (mixed) {
    seconds = decodeSeconds(decoding);
    if (seconds == 0 || unmeasured >= kMeasureAfter)
      return 0;
  }
  const double growth = static_cast<double>(last[mixed] * kGrowth);
  const double fitting = perToken[mixed] > 0
                             ? std::min(growth, seconds / perToken[mixed])
                             : static_cast<double>(last[mixed]);
  return std::min(mostPrompt,
                  std::max(kLeastPrompt, static_cast<int64_t>(fitting)));
}

/// An average that follows its last few values.
static void follow(double &average, double value) {
  average = average == 0 ? value : (average + value) / 2;
}

void StepPace::record(size_t decoding, int64_t prompt, double seconds) {
  if (prompt == 0) {
    follow(withoutPrompt[decoding], seconds);
    unmeasured = 0;
    return;
  }
  const bool mixed = decoding != 0;
  if (mixed)
    ++unmeasured;
  // Noise may make a step shorter than one without prompt tokens.
  const double added =
      std::max(seconds - (mixed ? decodeSeconds(decoding) : 0), seconds / 16);
  follow(perToken[mixed], added / static_cast<double>(prompt));
  last[mixed] = prompt;
}
