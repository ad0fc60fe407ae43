//===- Dry.cpp - Tokens that would go on with a repetition ----------------===//
//
// DRY of p-e-w, https://github.com/oobabooga/text-generation-webui/pull/5637,
// as llama.cpp has it.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/DryBreakers.h"
#include "engine/samplers/LogitProcessor.h"

#include "qwen/Numerics/Doubles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

using namespace qwen;

namespace {
/// The last tokens. Number 0 is the very last.
struct LastTokens {
  std::span<const int32_t> tokens;

  size_t size() const { return tokens.size(); }
  int32_t operator[](size_t i) const { return tokens[tokens.size() - 1 - i]; }
};
} // namespace

/// The number of tokens after the last breaker; all if there is none.
static size_t countUnbroken(const LastTokens &last,
                            const DryBreakers &breakers) {
  for (size_t i = 0; i < last.size(); ++i) {
    const auto rests = breakers.restsAfter(last[i]);
    std::optional<size_t> longest;
    for (const std::vector<int32_t> &rest : rests) {
      bool isThere = rest.size() <= i;
      for (size_t k = 0; isThere && k < rest.size(); ++k)
        isThere = rest[k] == last[i - k - 1];
      if (isThere)
        longest = std::max(longest.value_or(0), rest.size());
    }
    if (longest)
      return i - *longest;
  }
  return last.size();
}

/// For each i, how many tokens from i on are those from 0 on: the Z-algorithm
/// (Gusfield, "Algorithms on Strings, Trees, and Sequences", 1997).
static void findMatches(const LastTokens &last, std::vector<int32_t> &matches) {
  matches.resize(last.size());
  size_t left = 0, right = 0;
  for (size_t i = 1; i < last.size(); ++i) {
    size_t length = 0;
    if (i < right)
      length = std::min(static_cast<size_t>(matches[i - left]), right - i);
    while (i + length < last.size() && last[length] == last[i + length])
      ++length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    matches[i] = static_cast<int32_t>(length);
  }
}

static void startDry(const SamplerOptions &, SamplerState &state,
                     ProcessorBits) {
  state.repeats.assign(state.marks.vocab(), 0);
}

/// Marks the tokens that followed an earlier place like the end, with the
/// greatest length of the repetition.
static void markContinuations(const SamplerOptions &options,
                              SamplerState &state, ProcessorBits bit) {
  for (int32_t id : state.repeating)
    state.repeats[static_cast<size_t>(id)] = 0;
  state.repeating.clear();
  size_t size = state.history.size();
  if (options.dryLastN >= 0)
    size = std::min(size, static_cast<size_t>(options.dryLastN));
  const LastTokens last{std::span(state.history).last(size)};
  const int64_t least = options.dryAllowedLength;
  const DryBreakers *breakers = options.dryBreakers.get();
  const auto most = static_cast<int64_t>(
      breakers ? countUnbroken(last, *breakers) : last.size());
  if (static_cast<int64_t>(last.size()) <= least || most < least)
    return;
  findMatches(last, state.matches);
  for (size_t i = 1; i < last.size(); ++i) {
    const int64_t length = std::min<int64_t>(state.matches[i], most);
    const int32_t id = last[i - 1];
    if (length < least || (breakers && breakers->isWhole(id)))
      continue;
    int32_t &longest = state.repeats[static_cast<size_t>(id)];
    state.repeating.push_back(id);
    state.marks.add(id, bit);
    longest = std::max(longest, static_cast<int32_t>(length));
  }
}

static bool penalizeRepetition(const SamplerOptions &options,
                               const SamplerState &state, size_t id,
                               float &logit) {
  constexpr double kMost = std::numeric_limits<float>::max();
  constexpr double kLogMost = 88.7228391;
  auto exponent =
      static_cast<double>(state.repeats[id] - options.dryAllowedLength);
  if (options.dryBase > 1)
    exponent = std::min(exponent,
                        std::floor(kLogMost / numerics::log(options.dryBase)));
  logit -= static_cast<float>(std::min(
      options.dryMultiplier * numerics::pow(options.dryBase, exponent), kMost));
  return true;
}

const LogitProcessor logits::Dry = {.isOn =
                                        [](const SamplerOptions &options) {
                                          return options.dryMultiplier > 0 &&
                                                 options.dryLastN != 0;
                                        },
                                    .process = penalizeRepetition,
                                    .start = startDry,
                                    .prepare = markContinuations};
