//===- Sampler.cpp - From logits to a token -------------------------------===//

#include "engine/Sampler.h"

#include "engine/Logprobs.h"
#include "engine/samplers/LogitProcessor.h"
#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/WideVectors.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

using namespace qwen;

/// Number of tokens whose greatest logit is found first.
static constexpr size_t kBlock = 512;

static constexpr const char *kNothingToDraw =
    "all logits are -infinity: no token is left to draw";

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

static double fraction(uint32_t highWord, uint32_t lowWord) {
  const uint64_t bits = uint64_t{highWord} << 32 | lowWord;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

TokenRandoms qwen::tokenRandoms(uint64_t seed, uint64_t answer,
                                uint64_t position) {
  const std::array<uint32_t, 4> words =
      philox4x32({low(answer), high(answer), low(position), high(position)},
                 {low(seed), high(seed)});
  return {fraction(words[0], words[1]), fraction(words[2], words[3])};
}

static void requireToken(int32_t id, size_t vocab) {
  if (id < 0 || static_cast<size_t>(id) >= vocab)
    throw Error("token id " + std::to_string(id) +
                " is not in the vocabulary of " + std::to_string(vocab));
}

Sampler::Sampler(const SamplerOptions &samplerOptions, int64_t vocab,
                 int64_t tokenCount, uint64_t answerIndex,
                 std::span<const int32_t> ends)
    : options(std::make_shared<const SamplerOptions>(samplerOptions)),
      answer(answerIndex), tokens(static_cast<size_t>(tokenCount)),
      state{.marks = {static_cast<size_t>(vocab), tokens}} {
  checkOptions();
  for (int32_t id : ends)
    if (id >= 0 && id < vocab)
      state.ends.push_back(id);
  blocks.reserve(tokens / kBlock + 1);
  sortedBlocks.reserve(tokens / kBlock + 1);
  candidates.reserve(tokens);
  addSteps();
  reset();
}

void Sampler::checkOptions() const {
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
    [[maybe_unused]] const Type value = options->Field;                        \
    check(Valid, #Name, static_cast<double>(value), Needed);                   \
  }
#include "qwen/ABI/SamplerOptions.def"
  check(tokens >= 1 && tokens <= state.marks.vocab(), "the vocabulary",
        static_cast<double>(tokens), "at least 1 token");
  for (const auto &[id, bias] : options->logitBias) {
    requireToken(id, state.marks.vocab());
    check(true, "the logit bias", bias, "a finite number");
  }
  for (const std::vector<int32_t> &word : options->badWords)
    for (int32_t id : word)
      requireToken(id, state.marks.vocab());
}

namespace {
/// A row of Samplers.def: one of two.
struct SamplerRow {
  const LogitProcessor *processor;
  const TokenCut *cut;
};
} // namespace

static constexpr const LogitProcessor *kFirst[] = {
#define QWEN_FIRST_LOGITS(Name) &logits::Name,
#include "engine/samplers/Samplers.def"
};

/// By SamplerKind.
static constexpr SamplerRow kRows[] = {
#define QWEN_LOGITS(Name, Text) {&logits::Name, nullptr},
#define QWEN_CUT(Name, Text) {nullptr, &cut::Name},
#include "engine/samplers/Samplers.def"
};

static_assert(std::size(kFirst) +
                      std::ranges::count_if(kRows, &SamplerRow::processor) <=
                  std::numeric_limits<ProcessorBits>::digits,
              "a processor without a bit would change no logit");

/// The samplers of `options` in their order.
static std::vector<SamplerRow> rowsOf(const SamplerOptions &options) {
  std::vector<SamplerRow> rows;
  for (const LogitProcessor *each : kFirst)
    rows.push_back({each, nullptr});
  if (options.samplers)
    for (SamplerKind kind : *options.samplers)
      rows.push_back(kRows[static_cast<size_t>(kind)]);
  else
    rows.insert(rows.end(), std::begin(kRows), std::end(kRows));
  std::erase_if(rows, [&](const SamplerRow &row) {
    return row.processor ? !row.processor->isOn(options)
                         : !row.cut->isOn(options);
  });
  return rows;
}

void Sampler::addSteps() {
  const bool hasCuts = options->temperature != 0 && options->mirostat == 0;
  for (const SamplerRow &row : rowsOf(*options)) {
    if (row.processor) {
      if (!steps.empty())
        steps.push_back({nullptr, processors.size()});
      processors.push_back(
          {row.processor, static_cast<ProcessorBits>(1 << processors.size())});
      early += steps.empty();
    } else if (hasCuts) {
      steps.push_back({row.cut});
    }
  }
  if (options->mirostat != 0)
    steps = {{&cut::Mirostat}};
  // A temperature that depends on the tokens stays a step.
  const bool isFirst = !steps.empty() &&
                       steps.front().cut == &cut::Temperature &&
                       options->temperatureRange == 0;
  if (isFirst)
    steps.erase(steps.begin());
  if (isFirst || options->mirostat != 0)
    divisor = options->temperature;
  startProcessors();
}

void Sampler::startProcessors() {
  for (const auto &[processor, bit] : processors) {
    drawBits |= processor->prepare ? bit : 0;
    acceptBits |= processor->accept ? bit : 0;
    if (processor->start)
      processor->start(*options, state, bit);
  }
}

void Sampler::reserve(size_t count) {
  if (!drawBits)
    return;
  state.history.reserve(count);
  state.repeating.reserve(count);
  state.matches.reserve(count);
}

void Sampler::reserveFor(const Sampler &other) {
  processors.reserve(other.processors.size());
  steps.reserve(other.steps.size());
  state.reserveFor(other.state);
}

void Sampler::become(const Sampler &other) {
  const bool isSame = options == other.options;
  options = other.options;
  answer = other.answer;
  processors = other.processors;
  early = other.early;
  steps = other.steps;
  divisor = other.divisor;
  drawBits = other.drawBits;
  acceptBits = other.acceptBits;
  mu = other.mu;
  lastDrawn = other.lastDrawn;
  lastSurprise = other.lastSurprise;
  if (!isSame)
    state.prepareFor(other.state);
  state.follow(other.state);
}

void Sampler::acceptPrompt(int32_t id) { accept(id, false); }

void Sampler::acceptDrawn(int32_t id) {
  accept(id, true);
  ++state.drawn;
  if (options->mirostat && id == lastDrawn)
    mu -= options->mirostatEta * (lastSurprise - options->mirostatTau);
  lastDrawn = -1;
}

void Sampler::accept(int32_t id, bool isDrawn) {
  requireToken(id, state.marks.vocab());
  for (const auto &[processor, bit] : processors)
    if (processor->accept)
      processor->accept(*options, state, bit, id, isDrawn);
  if (drawBits)
    state.history.push_back(id);
}

void Sampler::reset() {
  state.drawn = 0;
  state.history.clear();
  std::ranges::fill(state.counts, 0);
  state.marks.remove(acceptBits);
  mu = 2 * options->mirostatTau;
  lastDrawn = -1;
}

void Sampler::prepare() {
  if (drawBits)
    state.marks.remove(drawBits);
  for (const auto &[processor, bit] : processors)
    if (processor->prepare)
      processor->prepare(*options, state, bit);
}

bool Sampler::process(const Processor &with, size_t id, float &logit) const {
  return !(state.marks[id] & with.bit) ||
         with.processor->process(*options, state, id, logit);
}

bool Sampler::process(size_t id, float &logit) const {
  for (size_t i = 0; i < early; ++i)
    if (!process(processors[i], id, logit))
      return false;
  return true;
}

template <typename VisitType>
void Sampler::visitBlock(const Row &row, size_t block, VisitType visit) const {
  const size_t begin = block * kBlock;
  for (size_t id = begin; id < std::min(begin + kBlock, tokens); ++id) {
    float logit = row[id];
    if (logit != -INFINITY && (!state.marks[id] || process(id, logit)))
      visit(id, logit);
  }
}

void Sampler::findGreatest(std::span<const float> logits) {
  if (logits.size() != state.marks.vocab())
    throw Error("there are " + std::to_string(logits.size()) +
                " logits when the vocabulary has " +
                std::to_string(state.marks.vocab()));
  blocks.clear();
  for (size_t begin = 0; begin < tokens; begin += kBlock) {
    blocks.push_back(
        greatestLogit(logits.subspan(begin, std::min(kBlock, tokens - begin))));
    if (!std::isnan(blocks.back()))
      continue;
    const auto invalid = std::ranges::find_if(
        logits, [](float logit) { return !(logit < INFINITY); });
    throw Error(
        "the logit of token " + std::to_string(invalid - logits.begin()) +
        " is NaN or infinity when a finite number, or -infinity for a token "
        "that is never drawn, is needed");
  }
}

void Sampler::processGreatest(const Row &row) {
  for (float &block : blocks)
    block = static_cast<float>(block - row.sum);
  for (int32_t id : state.marks.ids()) {
    const auto i = static_cast<size_t>(id);
    float logit = row[i];
    if (logit != -INFINITY && process(i, logit))
      blocks[i / kBlock] = std::max(blocks[i / kBlock], logit);
  }
}

int32_t Sampler::greedy(std::span<const float> logits) const {
  size_t best = tokens;
  float most = -INFINITY;
  for (size_t block = 0; block < blocks.size(); ++block)
    if (blocks[block] > most)
      visitBlock({logits}, block, [&](size_t id, float logit) {
        if (best == tokens || logit > most) {
          most = logit;
          best = id;
        }
      });
  if (best == tokens)
    throw Error(kNothingToDraw);
  return static_cast<int32_t>(best);
}

void Sampler::collectAll(std::span<const float> logits,
                         std::vector<CandidateKey> &keys) const {
  // A token that is skipped has NaN in place of its logit.
  keys.resize(tokens);
  size_t skipped = numerics::inWideVectors([&] {
    const std::span<const float> from = logits;
    const std::span<CandidateKey> to = keys;
    const float over = divisor;
    size_t count = 0;
    for (size_t id = 0; id < to.size(); ++id) {
      const float logit = from[id] == -INFINITY ? NAN : from[id];
      to[id] = {logit / over, id};
      count += from[id] == -INFINITY;
    }
    return count;
  });
  for (int32_t marked : state.marks.ids()) {
    const auto id = static_cast<size_t>(marked);
    float logit = logits[id];
    if (logit == -INFINITY)
      continue;
    const bool isKept = process(id, logit);
    keys[id] = {isKept ? logit / divisor : NAN, id};
    skipped += !isKept;
  }
  if (skipped)
    std::erase_if(keys,
                  [](CandidateKey key) { return std::isnan(key.logit()); });
}

void Sampler::collectBest(const Row &row, float over, size_t most,
                          std::vector<CandidateKey> &keys) {
  keys.clear();
  // The blocks that most likely have the best come first, so that most others
  // are skipped.
  float least = -INFINITY;
  if (most < blocks.size()) {
    sortedBlocks = blocks;
    const auto last = sortedBlocks.begin() + static_cast<std::ptrdiff_t>(most);
    std::ranges::nth_element(sortedBlocks, last, std::greater());
    least = *last;
  }
  for (const bool isFirst : {true, false})
    for (size_t block = 0; block < blocks.size(); ++block)
      if ((blocks[block] > least) == isFirst && blocks[block] != -INFINITY)
        addBest(row, over, most, block, keys);
}

void Sampler::addBest(const Row &row, float over, size_t most, size_t block,
                      std::vector<CandidateKey> &keys) const {
  // From `most` on, a heap with the last of the best keys on top.
  if (keys.size() == most &&
      CandidateKey(blocks[block] / over, block * kBlock) > keys.front())
    return;
  visitBlock(row, block, [&](size_t id, float logit) {
    const CandidateKey key(logit / over, id);
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

void Sampler::select(std::span<const float> logits) {
  std::vector<CandidateKey> &keys = candidates.refill();
  if (!steps.empty() && steps.front().cut == &cut::TopK)
    collectBest({logits}, divisor, static_cast<size_t>(options->topK), keys);
  else
    collectAll(logits, keys);
  if (keys.empty())
    throw Error(kNothingToDraw);
  candidates.begin();
  if (std::isfinite(candidates.greatest()))
    return;
  // Quotients past all floats have lost their order.
  candidates.refill() = {CandidateKey(0, static_cast<size_t>(greedy(logits)))};
  candidates.begin();
}

double Sampler::best(std::span<const float> logits, size_t count,
                     std::vector<CandidateKey> &keys) {
  // Beams have no cuts, so no processor comes after one.
  early = processors.size();
  prepare();
  findGreatest(logits);
  // Padding counts, and the maximum is NaN if its own is.
  const float greatest =
      std::max(greatestLogit(logits.subspan(tokens)), std::ranges::max(blocks));
  const double sum = logSumWeights(logits, greatest);
  const Row row = {logits, sum};
  processGreatest(row);
  collectBest(row, 1, count, keys);
  return sum;
}

float Sampler::penalized(int32_t id, float logprob) const {
  const auto i = static_cast<size_t>(id);
  if (state.marks[i])
    process(i, logprob);
  return logprob;
}

void Sampler::cut(std::span<const float> logits, double coin) {
  select(logits);
  for (const Step &step : steps)
    if (step.cut)
      step.cut->apply(*options, candidates, {coin, mu, tokens});
    else if (!candidates.change([&](size_t id, float &logit) {
               return process(processors[step.processor], id, logit);
             }))
      throw Error(kNothingToDraw);
}

double Sampler::surpriseOf(CandidateKey key) const {
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  const double weight =
      std::max(numerics::exp(candidates.belowOf(key)), kLeast);
  return numerics::log(candidates.mass() / weight) * std::numbers::log2e;
}

int32_t Sampler::sample(std::span<const float> logits, uint64_t position) {
  prepare();
  findGreatest(logits);
  processGreatest({logits});
  if (options->temperature == 0)
    return greedy(logits);
  const auto [u, coin] = tokenRandoms(options->seed, answer, position);
  cut(logits, coin);
  const CandidateKey drawn = candidates.find(u, std::greater());
  lastDrawn = drawn.id();
  if (options->mirostat)
    lastSurprise = surpriseOf(drawn);
  return lastDrawn;
}

void Sampler::force(int32_t id) {
  prepare();
  for (const Processor &each : processors)
    if (float logit = 0; !process(each, static_cast<size_t>(id), logit))
      throw Error(kNothingToDraw);
  if (options->temperature == 0)
    return;
  lastDrawn = id;
  lastSurprise = 0;
}

std::vector<int32_t> Sampler::keptTokens(std::span<const float> logits,
                                         uint64_t position) {
  prepare();
  findGreatest(logits);
  processGreatest({logits});
  std::vector<int32_t> ids;
  if (options->temperature == 0)
    ids = {greedy(logits)};
  else
    cut(logits, tokenRandoms(options->seed, answer, position).coin);
  if (!ids.empty())
    return ids;
  for (size_t i = 0; i < candidates.size(); ++i)
    ids.push_back(candidates.at(i).id());
  return ids;
}
