//===- OpWork.cpp - Bytes and kernel calls of an op -----------------------===//

#include "qwen/ABI/OpWork.h"
#include "qwen/ABI/Blocks.h"

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

/// Tokens of a step that an op runs on.
static double tokensOf(const OpWork &work, const SequenceStep &step) {
  return work.wantedTokens ? 1 : static_cast<double>(step.tokens);
}

/// The sum of the pages before the own page of each of the first n positions.
static double pagesBefore(int64_t n) {
  const int64_t whole = n / kPageTokens;
  const auto pages = static_cast<double>(whole);
  return pages *
         (kPageTokens * (pages - 1) / 2 + static_cast<double>(n % kPageTokens));
}

StepCalls qwen::callsOfStep(const OpWork &work, const KernelCalls &calls,
                            const SequenceStep &step) {
  const double tokens = tokensOf(work, step);
  const auto first = static_cast<double>(step.first);
  const auto all = static_cast<double>(step.tokens);
  const double positions = all * (first + (all + 1) / 2);
  const double pages =
      pagesBefore(step.first + step.tokens) - pagesBefore(step.first);
  return {static_cast<double>(calls.calls) * tokens +
              static_cast<double>(calls.pageCalls) * pages,
          static_cast<double>(calls.macs) * tokens +
              static_cast<double>(calls.positionMacs) * positions};
}

StepWork qwen::workOfStep(const OpWork &work, const SequenceStep &step) {
  StepWork result = {};
  for (int64_t done = 0; done < step.tokens;) {
    const int64_t n = std::min(step.tokens - done, step.callTokens);
    done += n;
    // A product of the two may be too large for an integer.
    result.memoryBytes +=
        std::min(static_cast<double>(work.weightBytes),
                 static_cast<double>(work.activeBytes) *
                     (work.wantedTokens ? 1 : static_cast<double>(n))) +
        static_cast<double>(work.positionBytes) *
            static_cast<double>(step.first + done);
  }
  result.bytes = result.memoryBytes +
                 static_cast<double>(work.tokenBytes) * tokensOf(work, step);
  for (const KernelCalls &calls : work.calls)
    result.macs += callsOfStep(work, calls, step).macs;
  return result;
}
