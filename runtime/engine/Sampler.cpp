//===- Sampler.cpp - From logits to a token -------------------------------===//

#include "engine/Sampler.h"

#include "qwen/Numerics/Math.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

using namespace qwen;

/// Number of tokens whose greatest logit is found first.
static constexpr size_t kBlock = 512;

static constexpr const char *kNothingToDraw =
    "all logits are -infinity: no token is left to draw";

/// Bits of a mark: a token with a bias, one that ends the answer, one already
/// seen, one that the answer has.
static constexpr uint8_t kBiased = 1, kEnd = 2, kSeen = 4, kCounted = 8;

SamplerOptions qwen::samplerOptions(const GenerationConfig &generation) {
  SamplerOptions options;
#define QWEN_MODEL_SAMPLING(Type, Field, ...)                                  \
  options.Field = static_cast<Type>(generation.Field);
#include "qwen/ABI/SamplerOptions.def"
  if (!generation.doSample)
    options.temperature = 0;
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

static void requireToken(int32_t id, size_t vocab) {
  if (id < 0 || static_cast<size_t>(id) >= vocab)
    throw Error("token id " + std::to_string(id) +
                " is not in the vocabulary of " + std::to_string(vocab));
}

Sampler::Sampler(const SamplerOptions &samplerOptions, int64_t vocab,
                 int64_t tokenCount, uint64_t answerIndex,
                 std::span<const int32_t> ends)
    : options(samplerOptions), answer(answerIndex),
      tokens(static_cast<size_t>(tokenCount)) {
  const auto check = [](bool good, std::string name, double found,
                        const char *needed) {
    std::ranges::replace(name, '_', '-');
    if (!good || !std::isfinite(found))
      throw Error(name + " is " + std::to_string(found) + " when " + needed +
                  " is needed");
  };
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  {                                                                            \
    [[maybe_unused]] const Type value = options.Field;                         \
    check(Valid, #Name, static_cast<double>(value), Needed);                   \
  }
#include "qwen/ABI/SamplerOptions.def"
  check(tokenCount >= 1 && tokenCount <= vocab, "the vocabulary",
        static_cast<double>(tokenCount), "at least 1 token");
  marks.assign(static_cast<size_t>(vocab), 0);
  marked.reserve(tokens);
  blocks.reserve(tokens / kBlock + 1);
  keys.reserve(tokens);
  weights.reserve(tokens);
  if (options.frequencyPenalty != 0 || options.presencePenalty != 0)
    counts.assign(marks.size(), 0);
  if (!options.logitBias.empty())
    biases.assign(marks.size(), 0);
  for (const auto &[id, bias] : options.logitBias) {
    requireToken(id, marks.size());
    check(true, "the logit bias", bias, "a finite number");
    biases[static_cast<size_t>(id)] += bias;
    mark(id, kBiased);
  }
  for (int32_t id : ends)
    if (options.minTokens > 0 && id >= 0 && id < vocab)
      mark(id, kEnd);
}

void Sampler::mark(int32_t id, uint8_t bits) {
  const auto i = static_cast<size_t>(id);
  // Padding cannot be drawn.
  if (i >= tokens)
    return;
  if (!marks[i])
    marked.push_back(id);
  marks[i] |= bits;
}

void Sampler::acceptPrompt(int32_t id) {
  requireToken(id, marks.size());
  if (options.repetitionPenalty != 1)
    mark(id, kSeen);
}

void Sampler::acceptDrawn(int32_t id) {
  acceptPrompt(id);
  ++drawn;
  if (counts.empty())
    return;
  ++counts[static_cast<size_t>(id)];
  mark(id, kCounted);
}

void Sampler::reset() {
  drawn = 0;
  std::ranges::fill(counts, 0);
  std::erase_if(marked, [&](int32_t id) {
    return !(marks[static_cast<size_t>(id)] &= kBiased | kEnd);
  });
}

float Sampler::adjusted(size_t id, float logit) const {
  const uint8_t bits = marks[id];
  if (bits & kBiased)
    logit += biases[id];
  if (bits & kSeen)
    logit = logit > 0 ? logit / options.repetitionPenalty
                      : logit * options.repetitionPenalty;
  if (bits & kCounted) {
    logit -= static_cast<float>(counts[id]) * options.frequencyPenalty;
    logit -= options.presencePenalty;
  }
  return logit;
}

template <typename VisitType>
void Sampler::visitBlock(std::span<const float> logits, size_t block,
                         VisitType visit) const {
  const size_t begin = block * kBlock;
  for (size_t id = begin; id < std::min(begin + kBlock, tokens); ++id) {
    const float logit = logits[id];
    if (logit == -INFINITY)
      continue;
    if (!marks[id])
      visit(id, logit);
    else if (!(marks[id] & kEnd) || drawn >= options.minTokens)
      visit(id, adjusted(id, logit));
  }
}

/// The greatest of some logits, or NaN if one is NaN or +infinity.
static float greatest(std::span<const float> logits) {
  // Compilers vectorize a maximum in each lane, but not over all lanes.
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  uint32_t nans[kLanes] = {};
  std::ranges::fill(lanes, -INFINITY);
  const auto look = [&](size_t lane, float logit) {
    // All bits, as a vector's comparison gives them.
    nans[lane] |= -static_cast<uint32_t>(std::isnan(logit));
    lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      look(lane, logits[i + lane]);
  for (; i < logits.size(); ++i)
    look(0, logits[i]);
  uint32_t nan = 0;
  float most = -INFINITY;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    nan |= nans[lane];
    most = lanes[lane] > most ? lanes[lane] : most;
  }
  return nan || most == INFINITY ? NAN : most;
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
  for (int32_t id : marked) {
    const auto i = static_cast<size_t>(id);
    if (logits[i] != -INFINITY)
      blocks[i / kBlock] = std::max(blocks[i / kBlock], adjusted(i, logits[i]));
  }
}

int32_t Sampler::greedy(std::span<const float> logits) const {
  size_t best = tokens;
  float most = -INFINITY;
  for (size_t block = 0; block < blocks.size(); ++block)
    if (blocks[block] > most)
      visitBlock(logits, block, [&](size_t id, float logit) {
        if (best == tokens || logit > most) {
          most = logit;
          best = id;
        }
      });
  if (best == tokens)
    throw Error(kNothingToDraw);
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
  const size_t most =
      options.topK ? static_cast<size_t>(options.topK) : SIZE_MAX;
  // From `most` on, a heap with the last of the best keys on top.
  keys.clear();
  for (size_t block = 0; block < blocks.size(); ++block) {
    if (blocks[block] == -INFINITY ||
        (keys.size() == most && makeKey(blocks[block] / options.temperature,
                                        block * kBlock) > keys.front()))
      continue;
    visitBlock(logits, block, [&](size_t id, float logit) {
      const uint64_t key = makeKey(logit / options.temperature, id);
      if (keys.size() < most) {
        keys.push_back(key);
        if (keys.size() == most)
          std::ranges::make_heap(keys);
      } else if (key < keys.front()) {
        std::ranges::pop_heap(keys);
        keys.back() = key;
        std::ranges::push_heap(keys);
      }
    });
  }
  if (keys.empty())
    throw Error(kNothingToDraw);
}

//===----------------------------------------------------------------------===//
// Drawing
//===----------------------------------------------------------------------===//

float Sampler::weightOf(uint64_t key) const {
  const float logit = keyLogit(key);
  // A tiny temperature makes logits infinite, and infinity - infinity is NaN.
  return numerics::exp(logit == first ? 0 : logit - first);
}

void Sampler::orderMore() {
  // Logits that are ordered together. Tokens further down than kMostReach have
  // hardly any weight.
  constexpr float kStep = 2, kMostReach = 20;
  constexpr std::ptrdiff_t kFew = 1024;
  const auto begin = keys.begin() + static_cast<std::ptrdiff_t>(weights.size());
  auto end = keys.end();
  reach += kStep;
  if (end - begin > kFew && reach < kMostReach)
    end = std::partition(begin, end, [&](uint64_t key) {
      return keyLogit(key) >= first - reach;
    });
  std::sort(begin, end);
  std::transform(begin, end, std::back_inserter(weights),
                 [&](uint64_t key) { return weightOf(key); });
}

float Sampler::weight(size_t i) {
  while (i >= weights.size())
    orderMore();
  return weights[i];
}

Sampler::Bounds Sampler::boundTotal() const {
  double sum = 0;
  for (uint64_t key : keys)
    sum += weightOf(key);
  // A sum of n numbers in any order has a relative error below n * 2^-53.
  const double error = sum * static_cast<double>(keys.size()) * 0x1p-51;
  return {sum - error, sum + error};
}

std::optional<size_t> Sampler::countKept(const Bounds &total) {
  size_t kept = keys.size();
  if (options.topP < 1) {
    double head = 0;
    kept = 0;
    while (kept < keys.size() && head < options.topP * total.most) {
      if (head >= options.topP * total.least)
        return std::nullopt;
      head += weight(kept++);
    }
  }
  if (options.minP > 0) {
    // Weights descend, but for their last bits. The first one is 1.
    size_t end = 0;
    while (end < kept && weight(end) >= options.minP / 2)
      ++end;
    while (weights[end - 1] < options.minP)
      --end;
    kept = end;
  }
  return kept;
}

std::optional<size_t> Sampler::findPlace(double u, const Bounds &total) {
  const std::optional<size_t> kept = countKept(total);
  if (!kept)
    return std::nullopt;
  Bounds sum = total;
  if (*kept < keys.size()) {
    sum.least = 0;
    for (size_t i = 0; i < *kept; ++i)
      sum.least += weights[i];
    sum.most = sum.least;
  }
  double running = 0;
  for (size_t i = 0; i + 1 < *kept; ++i) {
    running += weight(i);
    if (running > u * sum.most)
      return i;
    if (running > u * sum.least)
      return std::nullopt;
  }
  return *kept - 1;
}

int32_t Sampler::sample(std::span<const float> logits, uint64_t position) {
  if (logits.size() != marks.size())
    throw Error("there are " + std::to_string(logits.size()) +
                " logits when the vocabulary has " +
                std::to_string(marks.size()));
  findGreatest(logits);
  if (options.temperature == 0)
    return greedy(logits);
  selectKeys(logits);
  first = keyLogit(*std::ranges::min_element(keys));
  weights.clear();
  reach = 0;
  const double u = uniform(options.seed, answer, position);
  std::optional<size_t> place = findPlace(u, boundTotal());
  if (!place) {
    double total = 0;
    for (size_t i = 0; i < keys.size(); ++i)
      total += weight(i);
    place = findPlace(u, {total, total});
  }
  return static_cast<int32_t>(low(keys[*place]));
}
