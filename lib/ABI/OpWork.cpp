//===- OpWork.cpp - Bytes and multiplications of an op --------------------===//

#include "qwen/ABI/OpWork.h"

#include <algorithm>

using namespace qwen;

static constexpr std::string_view kNames[] = {
#define QWEN_OP_KIND(Kind, Name) Name,
#include "qwen/ABI/OpKinds.def"
};

std::string_view qwen::opKindName(OpKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::optional<OpKind> qwen::parseOpKind(std::string_view name) {
  const auto *found = std::ranges::find(kNames, name);
  if (found == std::end(kNames))
    return std::nullopt;
  return static_cast<OpKind>(found - kNames);
}

StepWork qwen::workOfStep(const OpWork &work, const SequenceStep &step) {
  double calls = 0, cached = 0, seen = 0;
  for (int64_t done = 0; done < step.tokens; ++calls) {
    const int64_t n = std::min(step.tokens - done, step.callTokens);
    const auto before = static_cast<double>(step.first + done);
    const auto tokens = static_cast<double>(n);
    done += n;
    cached += before + tokens;
    seen += tokens * (before + (tokens + 1) / 2);
  }
  const double tokens =
      work.wantedTokens ? 1 : static_cast<double>(step.tokens);
  return {static_cast<double>(work.weightBytes) * calls +
              static_cast<double>(work.tokenBytes) * tokens +
              static_cast<double>(work.positionBytes) * cached,
          static_cast<double>(work.macs) * tokens +
              static_cast<double>(work.positionMacs) * seen};
}
