//===- SamplerTest.cpp - From logits to a token ---------------------------===//

#include "engine/Sampler.h"
#include "HandmadeArtifact.h"
#include "TempDir.h"
#include "engine/Logprobs.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Numerics/Math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace qwen;
using qwen::test::messageOf;

/// The share of each id among 4096 draws at different positions.
static std::vector<double> shares(const SamplerOptions &options,
                                  const std::vector<float> &logits,
                                  int64_t tokens = 0) {
  const auto vocab = static_cast<int64_t>(logits.size());
  Sampler sampler(options, vocab, tokens ? tokens : vocab);
  std::vector<double> result(logits.size());
  for (uint64_t position = 0; position < 4096; ++position)
    result[static_cast<size_t>(sampler.sample(logits, position))] += 1 / 4096.;
  return result;
}

TEST(Logprobs, OfWholeRowsAreThoseOfTokens) {
  std::vector<float> logits;
  for (int i = 0; i < 1003; ++i)
    logits.push_back(static_cast<float>(std::sin(i) * 40));
  logits[7] = -INFINITY;
  const double exact = logSumExp(logits);
  const float most = greatestLogit(logits);
  EXPECT_NEAR(logSumWeights(logits, most), exact, 1e-6);
  // Whatever the width of vectors, the bits are those of numerics::exp.
  for (size_t size : {size_t{1}, size_t{15}, size_t{33}, logits.size()}) {
    double lanes[16] = {};
    for (size_t i = 0; i < size; ++i)
      lanes[i % 16] += numerics::exp(logits[i] - 40.0f);
    for (size_t width = 8; width; width /= 2)
      for (size_t lane = 0; lane < width; ++lane)
        lanes[lane] += lanes[lane + width];
    EXPECT_EQ(numerics::sumWeights(std::span(logits).first(size), 40),
              lanes[0]);
  }
  const std::vector<float> none(3, -INFINITY);
  EXPECT_EQ(logSumWeights(none, greatestLogit(none)), 0);
  EXPECT_TRUE(std::isnan(greatestLogit(std::vector<float>{0, INFINITY})));
  EXPECT_EQ(logSumWeights(std::vector<float>{0, INFINITY}, NAN), 0);
}

TEST(Philox, KnownAnswers) {
  // The test vectors of Random123.
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformIsTheUpperBitsOfTwoWords) {
  EXPECT_EQ(tokenRandoms(0, 0, 0).draw,
            static_cast<double>(0x6627e8d5e169c58d >> 11) / 9007199254740992.);
  // Words: answer low and high, position low and high; seed low and high.
  EXPECT_EQ(
      tokenRandoms(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e)
          .draw,
      static_cast<double>(0xd16cfe0994fdcceb >> 11) / 9007199254740992.);
}

TEST(Sampler, GreedyTakesTheFirstLargest) {
  Sampler sampler({.temperature = 0}, 5, 5);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 7, -3, 7, 2}, 0), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-5, -4, -3, -9, -3}, 0), 2);
}

TEST(Sampler, PaddingRowsAreNeverDrawn) {
  const std::vector<float> logits = {1, 2, 9, 9};
  EXPECT_EQ(Sampler({.temperature = 0}, 4, 2).sample(logits, 0), 1);
  const std::vector<double> drawn = shares({}, logits, 2);
  EXPECT_EQ(drawn[2] + drawn[3], 0);
  EXPECT_NEAR(drawn[1], 1 / (1 + std::exp(-1)), 0.02);
}

TEST(Sampler, RepetitionPenaltyCountsAnIdOnce) {
  Sampler sampler({.temperature = 0, .repetitionPenalty = 2}, 3, 3);
  const std::vector<float> logits = {4, 3, -1};
  EXPECT_EQ(sampler.sample(logits, 0), 0);
  sampler.acceptPrompt(0);
  sampler.acceptPrompt(0);
  EXPECT_EQ(sampler.sample(logits, 0), 1); // 4 / 2 = 2 < 3
  EXPECT_EQ(sampler.sample(std::vector<float>{7, 3, -1}, 0), 0); // 7 / 2 = 3.5
  sampler.acceptPrompt(1);
  sampler.acceptPrompt(2);
  // -1 * 2 = -2 is worse than 0.5 / 2.
  EXPECT_EQ(sampler.sample(std::vector<float>{-3, 0.5, -1}, 0), 1);
  sampler.reset();
  EXPECT_EQ(sampler.sample(logits, 0), 0);
}

TEST(Sampler, SharesAreThoseOfTheSoftmax) {
  const std::vector<double> drawn = shares({.seed = 5}, {0, 1, 2});
  const double total = 1 + std::exp(1) + std::exp(2);
  EXPECT_NEAR(drawn[0], 1 / total, 0.02);
  EXPECT_NEAR(drawn[1], std::exp(1) / total, 0.02);
  EXPECT_NEAR(drawn[2], std::exp(2) / total, 0.02);
}

TEST(Sampler, TemperatureDividesLogits) {
  const std::vector<double> drawn = shares({.temperature = 0.5f}, {0, 1});
  EXPECT_NEAR(drawn[1], 1 / (1 + std::exp(-2)), 0.02);
}

TEST(Sampler, TopKBreaksTiesByTheLesserId) {
  const std::vector<double> drawn = shares({.topK = 2}, {1, 3, 1, 1});
  EXPECT_NEAR(drawn[0], 1 / (1 + std::exp(2)), 0.02);
  EXPECT_EQ(drawn[2] + drawn[3], 0);
  EXPECT_EQ(shares({.topK = 1}, {5, 5, 5})[0], 1);
}

TEST(Sampler, TopPKeepsTheShortestHead) {
  // Of four equal tokens, two have exactly half of the sum.
  EXPECT_EQ(shares({.topP = 0.5}, {1, 1, 1, 1})[2], 0);
  EXPECT_GT(shares({.topP = 0.5}, {1, 1, 1, 1})[1], 0.4);
  EXPECT_GT(shares({.topP = 0.500001}, {1, 1, 1, 1})[2], 0.25);
  // At least one token is kept, even if p is tiny.
  EXPECT_EQ(shares({.topP = 1e-9}, {1, 2, 1})[1], 1);
  // p is a share of what top-k left: 1 + e^-1 of three.
  EXPECT_EQ(shares({.topK = 2, .topP = 0.7}, {5, 4, 3.9f})[0], 1);
}

TEST(Sampler, MinPIsAShareOfTheGreatest) {
  const float e = numerics::exp(-1.0f);
  EXPECT_GT(shares({.minP = e}, {2, 1})[1], 0.2);
  EXPECT_EQ(shares({.minP = std::nextafter(double{e}, 1.)}, {2, 1})[1], 0);
  EXPECT_EQ(shares({.minP = 1}, {2, 1, 2})[1], 0);
}

TEST(Sampler, DrawIsTheFirstWhoseSumExceeds) {
  const double u = tokenRandoms(3, 4, 5).draw;
  // u selects one of 1000 equal tokens.
  const std::vector<float> logits(1000, -2.5f);
  Sampler sampler({.seed = 3}, 1000, 1000, 4);
  EXPECT_EQ(sampler.sample(logits, 5), static_cast<int>(u * 1000));
  // The same token again, and another token for another answer.
  EXPECT_EQ(sampler.sample(logits, 5), static_cast<int>(u * 1000));
  Sampler other({.seed = 3}, 1000, 1000, 5);
  EXPECT_EQ(other.sample(logits, 5),
            static_cast<int>(tokenRandoms(3, 5, 5).draw * 1000));
}

// Quotients that are infinite have no order, so that the first id of the
// largest logit is drawn, as with temperature 0.
TEST(Sampler, TinyTemperaturesAreGreedy) {
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  const std::vector<float> rows[] = {{1, 2, -1e30f},
                                     {5, 7, 6, 7, -3},
                                     {-30, -20, -20, -90},
                                     {1e30f, 3e38f, 3e38f}};
  const std::vector<std::string> last = {"top_k", "temperature"};
  for (const float temperature : {kLeast, 1e-44f, 1e-40f, 1e-38f})
    for (const std::vector<float> &row : rows) {
      const auto best =
          static_cast<size_t>(std::ranges::max_element(row) - row.begin());
      SamplerOptions options = {.temperature = temperature};
      EXPECT_EQ(shares(options, row)[best], 1) << temperature;
      options.topK = 2;
      EXPECT_EQ(shares(options, row)[best], 1) << temperature;
      options.samplers = parseSamplers(last);
      EXPECT_EQ(shares(options, row)[best], 1) << temperature;
      options.mirostat = 2;
      EXPECT_EQ(shares(options, row)[best], 1) << temperature;
      // From a range of entropy that leaves as little.
      EXPECT_EQ(
          shares({.temperature = temperature, .temperatureRange = temperature},
                 row)[best],
          1)
          << temperature;
    }
  // A finite quotient of the largest draws, whatever others become.
  const std::vector<double> drawn =
      shares({.temperature = 0.5f}, {0, 0, -3e38f});
  EXPECT_NEAR(drawn[1], 0.5, 0.05);
  EXPECT_EQ(drawn[2], 0);
}

TEST(Sampler, ExcludedTokensAreNeverDrawn) {
  // Also if the penalty or the temperature makes all logits -infinity. The
  // first is drawn then.
  const std::vector<float> logits = {-INFINITY, -3e38f, -3e38f, -INFINITY};
  Sampler greedy({.temperature = 0, .repetitionPenalty = 2}, 4, 4);
  greedy.acceptPrompt(1);
  greedy.acceptPrompt(2);
  EXPECT_EQ(greedy.sample(logits, 0), 1);
  for (float temperature : {1.f, 1e-44f}) {
    const std::vector<double> drawn =
        shares({.temperature = temperature}, logits);
    EXPECT_EQ(drawn[0] + drawn[3], 0);
    EXPECT_NEAR(drawn[2], temperature == 1 ? 0.5 : 0, 0.05);
  }
}

namespace {
/// A token with its negated logit, so that ascending pairs are in order.
using Ordered = std::vector<std::pair<float, int32_t>>;

/// The sums of a distribution, in integers of 2^-34.
struct Sums {
  explicit Sums(const Ordered &order) {
    for (const auto &[logit, id] : order) {
      const float below = order[0].first - logit;
      const float weight = numerics::exp(below);
      mass += std::rint(weight * 0x1p34);
      dot += std::rint(weight * below * 0x1p34);
    }
    entropy = numerics::log(mass * 0x1p-34) - dot / mass;
  }
  double mass = 0, dot = 0, entropy;
};
} // namespace

/// The cuts of docs/numerics.md before top-k.
static void cutBefore(Ordered &order, const SamplerOptions &options) {
  if (options.topNSigma > 0) {
    Ordered byId = order;
    std::ranges::sort(byId, {}, &Ordered::value_type::second);
    const auto count = static_cast<double>(order.size());
    double sum = 0, squares = 0;
    for (const auto &[logit, id] : byId)
      sum -= logit;
    for (const auto &[logit, id] : byId)
      squares += std::pow(-logit - sum / count, 2);
    const double least =
        -order[0].first - options.topNSigma * std::sqrt(squares / count);
    std::erase_if(order, [&](const auto &each) { return -each.first < least; });
  }
  if (options.topH < 1) {
    const size_t most = std::min<size_t>(order.size(), 100);
    double total = 0, entropy = 0, sum = 0;
    std::vector<double> parts;
    for (size_t i = 0; i < most; ++i)
      total += numerics::exp(order[0].first - order[i].first);
    for (size_t i = 0; i < most; ++i) {
      const float below = order[0].first - order[i].first;
      parts.push_back(numerics::exp(below) / total *
                      (numerics::log(total) - below));
      entropy += parts.back();
    }
    size_t kept = 0;
    while (kept < most &&
           ((sum += parts[kept]) <= options.topH * entropy || kept == 0))
      ++kept;
    order.resize(kept);
  }
}

/// Those after min-p.
static void cutAfter(Ordered &order, const SamplerOptions &options,
                     double coin) {
  const auto weightOf = [&](const Ordered::value_type &each) {
    return numerics::exp(order[0].first - each.first);
  };
  if (options.typicalP < 1) {
    const Sums sums(order);
    const double middle = numerics::log(sums.mass * 0x1p-34) - sums.entropy;
    std::vector<std::pair<double, double>> shifts;
    const float first = order[0].first;
    const auto shiftOf = [&](const Ordered::value_type &each) {
      return std::fabs(middle - static_cast<double>(first - each.first));
    };
    for (const auto &each : order)
      shifts.emplace_back(shiftOf(each), std::rint(weightOf(each) * 0x1p34));
    std::ranges::sort(shifts);
    double sum = 0;
    size_t i = 0;
    while ((sum += shifts[i].second) < options.typicalP * sums.mass &&
           i + 1 < shifts.size())
      ++i;
    std::erase_if(order, [&](const auto &each) {
      return shiftOf(each) > shifts[i].first;
    });
  }
  const auto keepAbove = [&](double least) {
    size_t kept = 1;
    while (kept < order.size() && weightOf(order[kept]) >= std::min(least, 1.0))
      ++kept;
    order.resize(kept);
  };
  if (options.epsilonCutoff > 0)
    keepAbove(options.epsilonCutoff * (Sums(order).mass * 0x1p-34));
  if (options.etaCutoff > 0) {
    const Sums sums(order);
    keepAbove(std::min(options.etaCutoff, std::sqrt(options.etaCutoff) *
                                              numerics::exp(-sums.entropy)) *
              (sums.mass * 0x1p-34));
  }
  if (coin < options.xtcProbability && options.xtcThreshold <= 0.5) {
    const double least = options.xtcThreshold * (Sums(order).mass * 0x1p-34);
    size_t likely = 0;
    while (likely < order.size() && weightOf(order[likely]) >= least)
      ++likely;
    if (likely >= 2)
      order.erase(order.begin(),
                  order.begin() + static_cast<ptrdiff_t>(likely - 1));
  }
}

// min-p keeps weights down to a part of the greatest; top-p, those whose sum is
// too small without the last one. Sums are in order.
static size_t countKept(const std::vector<float> &weights,
                        const SamplerOptions &options) {
  double total = 0, head = 0;
  for (float weight : weights)
    total += weight;
  size_t kept = 0;
  while (kept < weights.size() &&
         (kept == 0 || options.topP == 1 || head < options.topP * total))
    head += weights[kept++];
  while (weights[kept - 1] < options.minP)
    --kept;
  return kept;
}

/// The token that docs/numerics.md defines, step by step. `seen` are tokens of
/// the prompt, `counts` the number of times that the answer has each token.
static int32_t defined(const std::vector<float> &logits, int32_t tokens,
                       const std::vector<bool> &seen,
                       const std::vector<int32_t> &counts,
                       const std::vector<int32_t> &ends,
                       const SamplerOptions &options, uint64_t position) {
  const int64_t drawn = std::accumulate(counts.begin(), counts.end(), 0);
  Ordered order, undivided;
  for (int32_t id = 0; id < tokens; ++id) {
    const auto i = static_cast<size_t>(id);
    float logit = logits[i];
    if (logit == -INFINITY ||
        (drawn < options.minTokens && std::ranges::count(ends, id)))
      continue;
    for (const auto &[biased, bias] : options.logitBias)
      logit += biased == id ? bias : 0;
    if (seen[i] || counts[i])
      logit = logit > 0 ? logit / options.repetitionPenalty
                        : logit * options.repetitionPenalty;
    if (counts[i]) {
      logit -= static_cast<float>(counts[i]) * options.frequencyPenalty;
      logit -= options.presencePenalty;
    }
    undivided.emplace_back(-logit, id);
    order.emplace_back(-logit / options.temperature, id);
  }
  std::ranges::sort(order);
  std::ranges::sort(undivided);
  if (!std::isfinite(undivided[0].first / options.temperature))
    return undivided[0].second;
  cutBefore(order, options);
  if (options.topK)
    order.resize(std::min(order.size(), static_cast<size_t>(options.topK)));
  std::vector<float> weights;
  for (const auto &[logit, id] : order)
    weights.push_back(numerics::exp(order[0].first - logit));
  order.resize(countKept(weights, options));
  const auto [draw, coin] = tokenRandoms(options.seed, 0, position);
  cutAfter(order, options, coin);
  const size_t kept = order.size();
  double total = 0, running = 0;
  for (size_t i = 0; i < kept; ++i)
    total += weights[i] = numerics::exp(order[0].first - order[i].first);
  size_t i = 0;
  const double u = draw * total;
  while (i + 1 < kept && (running += weights[i]) <= u)
    ++i;
  return order[i].second;
}

/// Options in all combinations of their values, over many seeds.
static SamplerOptions optionsOf(uint64_t seed) {
  SamplerOptions options = {
      .temperature =
          seed % 3 ? (seed % 9 ? 0.7f : 3.f) : (seed % 27 ? 0.f : 1e-38f),
      .topK = static_cast<int64_t>(seed % 5) * 20,
      .topP = seed % 7 ? 1 : 0.3 + 0.1 * static_cast<double>(seed % 8),
      .minP = seed % 11 ? 0 : 0.001 * static_cast<double>(seed % 6),
      .repetitionPenalty = seed % 4 ? (seed % 2 ? 1.3f : 0.8f) : 1.f,
      .frequencyPenalty = seed % 10 < 4 ? 0.25f : 0.f,
      .presencePenalty = seed % 10 < 2 ? -0.5f : 0.f,
      .minTokens = seed % 6 ? 0 : 3,
      .seed = seed};
  if (seed % 13 == 0)
    options.topNSigma = 0.25 * static_cast<double>(1 + seed % 5);
  if (seed % 17 < 2)
    options.topH = 0.2 + 0.1 * static_cast<double>(seed % 7);
  if (seed % 5 == 1)
    options.typicalP = 0.2 + 0.1 * static_cast<double>(seed % 8);
  if (seed % 7 == 2)
    options.epsilonCutoff = 0.0005 * static_cast<double>(1 + seed % 9);
  if (seed % 7 == 3)
    options.etaCutoff = 0.0005 * static_cast<double>(1 + seed % 9);
  if (seed % 3 == 2) {
    options.xtcProbability = 0.5;
    options.xtcThreshold = 0.01 * static_cast<double>(1 + seed % 60);
  }
  if (seed % 8 < 2)
    options.logitBias = {{7, 3.5f}, {4000, -2}, {4000, -1}, {4995, 100}};
  return options;
}

// So many tokens that the sampler skips some.
TEST(Sampler, LargeVocabulariesFollowTheDefinition) {
  constexpr int32_t kVocab = 5000, kTokens = 4990;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto draw = [&](uint64_t i) { return tokenRandoms(seed, 1, i).draw; };
    std::vector<float> logits;
    for (uint64_t i = 0; i < kVocab; ++i)
      // Few distinct numbers, so that many tie.
      logits.push_back(
          draw(i) < 0.1
              ? -INFINITY
              : static_cast<float>(std::floor((draw(i) - 0.6) * 300)) / 16);
    const SamplerOptions options = optionsOf(seed);
    // The most likely tokens end the answer.
    const auto most = std::ranges::max_element(logits) - logits.begin();
    const std::vector<int32_t> ends = {static_cast<int32_t>(most), 7};
    Sampler sampler(options, kVocab, kTokens, 0, ends);
    std::vector<bool> seen(kVocab);
    std::vector<int32_t> counts(kVocab);
    for (int32_t id = 0; id < kVocab; ++id)
      if (draw(static_cast<uint64_t>(id) + 10000) < 0.1) {
        sampler.acceptPrompt(id);
        seen[static_cast<size_t>(id)] = true;
      }
    for (uint64_t position = 9; position < 15; ++position) {
      const int32_t expected =
          defined(logits, kTokens, seen, counts, ends, options, position);
      ASSERT_EQ(sampler.sample(logits, position), expected)
          << seed << " " << position;
      sampler.acceptDrawn(expected);
      ++counts[static_cast<size_t>(expected)];
    }
    // A reset leaves the options, and forgets the tokens.
    sampler.reset();
    EXPECT_EQ(sampler.sample(logits, 9),
              defined(logits, kTokens, std::vector<bool>(kVocab),
                      std::vector<int32_t>(kVocab), ends, options, 9));
  }
}

TEST(Sampler, PenaltiesOfTheAnswerLeaveThePrompt) {
  const std::vector<float> logits = {4, 3.5f, 1};
  Sampler sampler({.temperature = 0, .presencePenalty = 1}, 3, 3);
  sampler.acceptPrompt(0);
  EXPECT_EQ(sampler.sample(logits, 0), 0);
  sampler.acceptDrawn(0);
  EXPECT_EQ(sampler.sample(logits, 0), 1);
  sampler.acceptDrawn(1);
  EXPECT_EQ(sampler.sample(logits, 0), 0);
  Sampler counting({.temperature = 0, .frequencyPenalty = 0.2f}, 3, 3);
  for (int32_t drawn : {0, 0, 0, 0, 1})
    counting.acceptDrawn(drawn);
  EXPECT_EQ(counting.sample(logits, 0), 1); // 3.3 and 3.2
}

TEST(Sampler, MinTokensHoldsBackEnds) {
  const std::vector<float> logits = {9, 5, 1};
  const std::vector<int32_t> ends = {0, -1, 99};
  Sampler sampler({.temperature = 0, .minTokens = 2}, 3, 3, 0, ends);
  for (int32_t expected : {1, 1, 0, 0}) {
    EXPECT_EQ(sampler.sample(logits, 0), expected);
    sampler.acceptDrawn(expected);
  }
  const std::vector<int32_t> all = {0, 1, 2};
  Sampler stuck({.minTokens = 1}, 3, 3, 0, all);
  EXPECT_EQ(messageOf([&] { stuck.sample(logits, 0); }),
            "all logits are -infinity: no token is left to draw");
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
  for (float temperature : {0.f, 1.f}) {
    Sampler sampler({.temperature = temperature}, 4, 3);
    const auto error = [&](const std::vector<float> &logits) {
      return messageOf([&] { sampler.sample(logits, 0); });
    };
    const std::string invalid =
        " is NaN or infinity when a finite number, or -infinity for a token "
        "that is never drawn, is needed";
    EXPECT_EQ(error({NAN, NAN, NAN, NAN}), "the logit of token 0" + invalid);
    EXPECT_EQ(error({1, 2, -NAN, 1}), "the logit of token 2" + invalid);
    EXPECT_EQ(error({1, INFINITY, 2, 1}), "the logit of token 1" + invalid);
    EXPECT_EQ(error({-INFINITY, -INFINITY, -INFINITY, 1}),
              "all logits are -infinity: no token is left to draw");
    EXPECT_EQ(error({1, 2, 3, NAN}), ""); // padding
  }
}

TEST(Sampler, NamesTheOptionThatIsOutOfRange) {
  const auto error = [](SamplerOptions options) {
    return messageOf([&] { Sampler sampler(options, 4, 4); });
  };
  EXPECT_EQ(error({.temperature = -1}),
            "temperature is -1.000000 when 0 or more is needed");
  EXPECT_EQ(error({.temperature = NAN}).rfind("temperature is", 0), 0u);
  EXPECT_EQ(error({.topK = -1}).rfind("top-k is", 0), 0u);
  EXPECT_EQ(error({.topP = 0}).rfind("top-p is", 0), 0u);
  EXPECT_EQ(error({.topP = 1.1}).rfind("top-p is", 0), 0u);
  EXPECT_EQ(error({.minP = 2}).rfind("min-p is", 0), 0u);
  EXPECT_EQ(error({.presencePenalty = INFINITY}).rfind("presence-penalty", 0),
            0u);
  EXPECT_EQ(error({.minTokens = -1}).rfind("min-tokens is", 0), 0u);
  EXPECT_EQ(error({.logitBias = {{4, 1}}}),
            "token id 4 is not in the vocabulary of 4");
  EXPECT_EQ(error({.logitBias = {{1, NAN}}}).rfind("the logit bias is", 0), 0u);
  EXPECT_EQ(error({.mirostat = 3}),
            "mirostat is 3.000000 when 0, 1 or 2 is needed");
  EXPECT_EQ(error({.mirostatTau = 101}),
            "mirostat-tau is 101.000000 when 0 to 100 is needed");
  EXPECT_EQ(error({.mirostatEta = -0.1}).rfind("mirostat-eta is", 0), 0u);
  EXPECT_EQ(error({.repetitionPenalty = 0}).rfind("repetition-penalty is", 0),
            0u);
}

TEST(Sampler, DefaultsComeFromTheManifest) {
  GenerationConfig generation;
  generation.temperature = 0.7;
  EXPECT_EQ(samplerOptions(generation).temperature, 0);
  generation.doSample = true;
  EXPECT_EQ(samplerOptions(generation).temperature, 0.7f);
  EXPECT_EQ(samplerOptions(generation).topK, 50);
}

TEST(Sampler, NoNGramComesTwice) {
  const std::vector<float> logits = {5, 4, 3, 2, 1};
  for (int64_t size : {1, 2, 3}) {
    Sampler sampler({.temperature = 0, .noRepeatNgram = size}, 5, 5);
    std::vector<int32_t> all = {0, 1};
    for (int32_t id : all)
      sampler.acceptPrompt(id);
    const auto repeats = [&](int32_t id) {
      std::vector<int32_t> next = all;
      next.push_back(id);
      const auto last = next.end() - size;
      return std::search(next.begin(), next.end() - 1, last, next.end()) !=
             next.end() - 1;
    };
    for (int64_t i = 0; i < 40; ++i) {
      int32_t expected = 0;
      while (expected < 5 && repeats(expected))
        ++expected;
      if (expected == 5) {
        EXPECT_THROW(sampler.sample(logits, 0), Error);
        break;
      }
      ASSERT_EQ(sampler.sample(logits, 0), expected) << size << " " << i;
      all.push_back(expected);
      sampler.acceptDrawn(expected);
    }
  }
}
