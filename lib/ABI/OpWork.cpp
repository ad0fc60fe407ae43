//===- OpWork.cpp - Bytes and kernel calls of an op -----------------------===//

#include "qwen/ABI/OpWork.h"
#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <cmath>

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

/// What an op of `work` runs on, of `tokens` tokens with `wanted` wanted ones.
static int64_t numberOf(const OpWork &work, int64_t tokens, int64_t wanted) {
  switch (work.count) {
  case kTokensOfCall:
    return tokens;
  case kWantedTokens:
    return wanted;
  default:
    return 0;
  }
}

/// Tokens of a step that an op runs on.
static double tokensOf(const OpWork &work, const SequenceStep &step) {
  return static_cast<double>(step.sequences * numberOf(work, step.tokens, 1));
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
  const auto sequences = static_cast<double>(step.sequences);
  double positions = sequences * all * (first + (all + 1) / 2);
  double pages = sequences * (pagesBefore(step.first + step.tokens) -
                              pagesBefore(step.first));
  if (work.wholeSequence) {
    const int64_t wholePages = (step.tokens - 1) / kPageTokens;
    positions = sequences * all * all;
    pages = sequences * all * static_cast<double>(wholePages);
  }
  return {static_cast<double>(calls.calls) * tokens +
              static_cast<double>(calls.pageCalls) * pages,
          static_cast<double>(calls.macs) * tokens +
              static_cast<double>(calls.positionMacs) * positions};
}

/// Bytes of weights that a call of `tokens` reads.
static double weightBytesOf(const OpWork &work, double tokens) {
  const auto all = static_cast<double>(work.weightBytes);
  const auto active = static_cast<double>(work.activeBytes);
  if (work.routed)
    return all * (1 - std::pow(1 - active / all, tokens));
  // A product of the two may be too large for an integer.
  return std::min(all, active * tokens);
}

StepWork qwen::workOfStep(const OpWork &work, const SequenceStep &step) {
  StepWork result = {};
  const int64_t all = step.sequences * step.tokens;
  for (int64_t begin = 0, end = 0; begin < all; begin = end) {
    end = std::min(all, begin + step.callTokens);
    int64_t wanted = 0, positions = 0;
    for (int64_t i = begin / step.tokens; i * step.tokens < end; ++i) {
      const int64_t last = std::min(end - i * step.tokens, step.tokens);
      positions += step.first + last;
      wanted += last == step.tokens ? 1 : 0;
    }
    result.memoryBytes +=
        weightBytesOf(
            work, static_cast<double>(numberOf(work, end - begin, wanted))) +
        static_cast<double>(work.positionBytes) *
            static_cast<double>(positions);
  }
  result.bytes = result.memoryBytes +
                 static_cast<double>(work.tokenBytes) * tokensOf(work, step);
  for (const KernelCalls &calls : work.calls)
    result.macs += callsOfStep(work, calls, step).macs;
  return result;
}
