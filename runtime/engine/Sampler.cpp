//===- Sampler.cpp - From logits to a token -------------------------------===//

#include "engine/Sampler.h"

#include "qwen/ABI/Error.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace qwen;

/// Number of tokens whose greatest logit is found first.
static constexpr size_t kBlock = 512;

SamplerOptions qwen::samplerOptions(const GenerationConfig &generation) {
  SamplerOptions options;
  options.temperature =
      generation.doSample ? static_cast<float>(generation.temperature) : 0;
  options.topK = generation.topK;
  options.topP = generation.topP;
  options.minP = generation.minP;
  options.repetitionPenalty = static_cast<float>(generation.repetitionPenalty);
  return options;
}

std::array<uint32_t, 4> qwen::philox4x32(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiply0 * counter[0];
    const uint64_t product1 = kMultiply1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

static uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
static uint32_t high(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

double qwen::uniform(uint64_t seed, uint64_t answer, uint64_t position) {
  const std::array<uint32_t, 4> words =
      philox4x32({low(answer), high(answer), low(position), high(position)},
                 {low(seed), high(seed)});
  const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Sampler::Sampler(const SamplerOptions &samplerOptions, int64_t vocab,
                 int64_t tokenCount, uint64_t answerIndex)
    : options(samplerOptions), answer(answerIndex),
      tokens(static_cast<size_t>(tokenCount)) {
  const auto check = [](bool good, const char *name, double found,
                        const char *needed) {
    if (!good)
      throw Error(std::string(name) + " is " + std::to_string(found) +
                  " when " + needed + " is needed");
  };
  check(options.temperature >= 0 && std::isfinite(options.temperature),
        "temperature", options.temperature, "0 or more");
  check(options.topK >= 0, "top-k", static_cast<double>(options.topK),
        "0 (all) or more");
  check(options.topP > 0 && options.topP <= 1, "top-p", options.topP,
        "more than 0 and at most 1");
  check(options.minP >= 0 && options.minP <= 1, "min-p", options.minP,
        "0 to 1");
  check(options.repetitionPenalty > 0 &&
            std::isfinite(options.repetitionPenalty),
        "repetition penalty", options.repetitionPenalty, "more than 0");
  check(tokenCount >= 1 && tokenCount <= vocab, "the vocabulary",
        static_cast<double>(tokenCount), "at least 1 token");
  seen.assign(static_cast<size_t>(vocab), 0);
  blocks.reserve(tokens / kBlock + 1);
  keys.reserve(tokens);
  weights.reserve(tokens);
}

void Sampler::accept(int32_t id) {
  if (id < 0 || static_cast<size_t>(id) >= seen.size())
    throw Error("token id " + std::to_string(id) +
                " is not in the vocabulary of " + std::to_string(seen.size()));
  seen[static_cast<size_t>(id)] = 1;
}

void Sampler::reset() { std::ranges::fill(seen, uint8_t{0}); }

float Sampler::penalize(float logit) const {
  return logit > 0 ? logit / options.repetitionPenalty
                   : logit * options.repetitionPenalty;
}

float Sampler::penalized(std::span<const float> logits, size_t id) const {
  return seen[id] ? penalize(logits[id]) : logits[id];
}

/// The greatest of some logits, or NaN if one is NaN or +infinity.
static float greatest(std::span<const float> logits) {
  // Compilers vectorize a maximum in each lane, but not over all lanes.
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  uint32_t invalid[kLanes] = {};
  std::ranges::fill(lanes, -INFINITY);
  const auto look = [&](size_t lane, float logit) {
    invalid[lane] |= !(logit < INFINITY);
    lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      look(lane, logits[i + lane]);
  for (; i < logits.size(); ++i)
    look(0, logits[i]);
  if (std::ranges::count(invalid, 0U) != kLanes)
    return NAN;
  return *std::ranges::max_element(lanes);
}

void Sampler::findGreatest(std::span<const float> logits) {
  blocks.clear();
  for (size_t begin = 0; begin < tokens; begin += kBlock) {
    blocks.push_back(
        greatest(logits.subspan(begin, std::min(kBlock, tokens - begin))));
    if (!std::isnan(blocks.back()))
      continue;
    const auto invalid = std::ranges::find_if(
        logits, [](float logit) { return !(logit < INFINITY); });
    throw Error(
        "the logit of token " + std::to_string(invalid - logits.begin()) +
        " is NaN or infinity when a finite number, or -infinity for a token "
        "that is never drawn, is needed");
  }
  if (std::ranges::count(blocks, -INFINITY) == std::ssize(blocks))
    throw Error("all logits are -infinity: no token is left to draw");
}

/// The greatest that a penalty makes of logits up to `most`.
float Sampler::bound(float most) const {
  return std::max(most, penalize(most));
}

int32_t Sampler::greedy(std::span<const float> logits) const {
  size_t best = tokens;
  float most = -INFINITY;
  for (size_t block = 0; block < blocks.size(); ++block) {
    if (bound(blocks[block]) <= most)
      continue;
    const size_t begin = block * kBlock;
    for (size_t id = begin; id < std::min(begin + kBlock, tokens); ++id) {
      const float logit = penalized(logits, id);
      if (logits[id] != -INFINITY && (best == tokens || logit > most)) {
        most = logit;
        best = id;
      }
    }
  }
  return static_cast<int32_t>(best);
}

/// Ascending keys are (logit descending, id ascending).
static uint64_t makeKey(float logit, size_t id) {
  // Adding +0 makes -0 the same as +0.
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000;
  return uint64_t{~ascending} << 32 | id;
}

static float keyLogit(uint64_t key) {
  const uint32_t ascending = ~high(key);
  return std::bit_cast<float>(ascending >> 31 ? ascending & 0x7FFFFFFF
                                              : ~ascending);
}

void Sampler::selectKeys(std::span<const float> logits) {
  const size_t most = options.topK
                          ? std::min(static_cast<size_t>(options.topK), tokens)
                          : tokens;
  // From `most` on, a heap with the last of the best keys on top.
  keys.clear();
  for (size_t block = 0; block < blocks.size(); ++block) {
    const size_t begin = block * kBlock;
    if (keys.size() == most &&
        makeKey(bound(blocks[block]) / options.temperature, begin) >
            keys.front())
      continue;
    for (size_t id = begin; id < std::min(begin + kBlock, tokens); ++id) {
      if (logits[id] == -INFINITY)
        continue;
      const uint64_t key =
          makeKey(penalized(logits, id) / options.temperature, id);
      if (keys.size() < most) {
        keys.push_back(key);
        if (keys.size() == most)
          std::ranges::make_heap(keys);
      } else if (key < keys.front()) {
        std::ranges::pop_heap(keys);
        keys.back() = key;
        std::ranges::push_heap(keys);
      }
    }
  }
  std::ranges::sort(keys);
}

int32_t Sampler::sample(std::span<const float> logits, uint64_t position) {
  if (logits.size() != seen.size())
    throw Error("there are " + std::to_string(logits.size()) +
                " logits when the vocabulary has " +
                std::to_string(seen.size()));
  findGreatest(logits);
  if (options.temperature == 0)
    return greedy(logits);
  selectKeys(logits);

  weights.clear();
  const float first = keyLogit(keys[0]);
  for (uint64_t key : keys) {
    const float logit = keyLogit(key);
    // A tiny temperature makes logits infinite, and infinity - infinity is NaN.
    weights.push_back(numerics::exp(logit == first ? 0 : logit - first));
  }

  size_t kept = weights.size();
  if (options.topP < 1) {
    double total = 0, head = 0;
    for (float weight : weights)
      total += weight;
    kept = 0;
    while (kept < weights.size()) {
      head += weights[kept++];
      if (head >= options.topP * total)
        break;
    }
  }
  // Weights descend, and the first one is 1.
  while (weights[kept - 1] < options.minP)
    --kept;

  double total = 0, running = 0;
  for (size_t i = 0; i < kept; ++i)
    total += weights[i];
  const double drawn = uniform(options.seed, answer, position) * total;
  size_t i = 0;
  while (i + 1 < kept && (running += weights[i]) <= drawn)
    ++i;
  return static_cast<int32_t>(low(keys[i]));
}
