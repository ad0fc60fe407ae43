//===- SamplerStepsTest.cpp - Samplers with a state, and their order ------===//

#include "HandmadeArtifact.h"
#include "TempDir.h"
#include "engine/Sampler.h"
#include "engine/samplers/DryBreakers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <utility>

using namespace qwen;
using qwen::test::messageOf;

TEST(Presets, AreThoseOfTheDocumentation) {
  std::ifstream file(QWEN_SOURCE_DIR "/docs/sampling.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(samplerPresets().size(), 3u);
  for (const SamplerPreset &preset : samplerPresets()) {
    std::ostringstream row;
    row << "| `" << preset.name << "` | " << preset.help << " | ";
    const char *comma = "";
    for (const SamplerSetting &setting : preset.settings())
      row << std::exchange(comma, ", ") << "`" << setting.option << " "
          << setting.value << "`";
    EXPECT_NE(text.find(row.str() + " |\n"), std::string::npos) << row.str();
    // Their values are good.
    SamplerOptions options = {.temperature = 2, .topK = 7};
    preset.apply(options);
    EXPECT_NO_THROW(Sampler(options, 4, 4));
    EXPECT_LT(options.temperature, 2);
  }
  SamplerOptions options = {.topK = 7};
  samplerPreset("creative").apply(options);
  EXPECT_EQ(options.topK, 0);
  EXPECT_EQ(options.minP, 0.02);
  EXPECT_EQ(options.xtcProbability, 0.5);
  EXPECT_EQ(messageOf([] { samplerPreset("crea"); }),
            "there is no preset \"crea\": the presets are exact, balanced, "
            "creative");
}

/// What Mirostat keeps of a row, and the surprise of each token that is left,
/// by its formulas in double.
static std::vector<double> surprises(const std::vector<float> &logits,
                                     int version, double mu) {
  std::vector<double> sorted(logits.begin(), logits.end());
  std::ranges::sort(sorted, std::greater<>());
  const auto sumOf = [&](size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
      sum += std::exp(sorted[i]);
    return sum;
  };
  const double total = sumOf(sorted.size());
  size_t kept = 1;
  if (version == 2) {
    while (kept < sorted.size() &&
           -std::log2(std::exp(sorted[kept]) / total) <= mu)
      ++kept;
  } else {
    double products = 0, squares = 0;
    for (size_t i = 0; i + 1 < std::min<size_t>(100, sorted.size()); ++i) {
      const auto place = static_cast<double>(i);
      const double t = std::log((place + 2) / (place + 1));
      products += t * (sorted[i] - sorted[i + 1]);
      squares += t * t;
    }
    const double s = products / squares, e = s - 1;
    const double k =
        std::pow(e * std::pow(2, mu) /
                     (1 - std::pow(static_cast<double>(sorted.size()), -e)),
                 1 / s);
    kept = std::clamp<size_t>(static_cast<size_t>(k), 1, sorted.size());
  }
  std::vector<double> result;
  for (size_t i = 0; i < kept; ++i)
    result.push_back(-std::log2(std::exp(sorted[i]) / sumOf(kept)));
  return result;
}

TEST(Mirostat, FollowsTheSurpriseOfTokens) {
  for (int version : {1, 2}) {
    // Cuts do nothing.
    const SamplerOptions options = {.topK = 1,
                                    .topP = 0.1,
                                    .minP = 0.9,
                                    .mirostat = version,
                                    .mirostatTau = 3,
                                    .mirostatEta = 0.25,
                                    .seed = 8};
    Sampler sampler(options, 500, 500);
    Sampler copy(options, 500, 500);
    double mu = 6;
    for (uint64_t position = 0; position < 60; ++position) {
      std::vector<float> logits;
      for (uint64_t id = 0; id < 500; ++id)
        logits.push_back(
            static_cast<float>(6 * tokenRandoms(position, 2, id).draw -
                               2 * std::log(1. + static_cast<double>(id))));
      const std::vector<double> expected = surprises(logits, version, mu);
      const std::vector<int32_t> kept = sampler.keptTokens(logits, position);
      ASSERT_EQ(kept.size(), expected.size()) << version << " " << position;
      const int32_t drawn = sampler.sample(logits, position);
      // Draws that are not accepted, as those of drafts, change nothing.
      EXPECT_EQ(sampler.sample(logits, position), drawn);
      const auto place =
          static_cast<size_t>(std::ranges::find(kept, drawn) - kept.begin());
      // A token that somebody else chose has no surprise.
      const bool isGiven = position % 8 == 7;
      sampler.acceptDrawn(isGiven ? (drawn + 1) % 500 : drawn);
      if (!isGiven)
        mu -= 0.25 * (expected[place] - 3);
      // A copy goes on where the sampler is.
      EXPECT_EQ(copy.keptTokens(logits, position), kept);
      copy = sampler;
    }
    // The next answer begins anew.
    sampler.reset();
    std::vector<float> logits;
    for (int id = 0; id < 500; ++id)
      logits.push_back(static_cast<float>(-0.02 * id));
    EXPECT_EQ(sampler.keptTokens(logits, 0),
              Sampler(options, 500, 500).keptTokens(logits, 0));
  }
}

TEST(Mirostat, KeepsOneTokenAtLeast) {
  for (int version : {1, 2}) {
    const auto kept = [&](const std::vector<float> &logits, double tau) {
      return Sampler({.mirostat = version, .mirostatTau = tau}, 4, 4)
          .keptTokens(logits, 0)
          .size();
    };
    EXPECT_EQ(kept({1, 3, 2, 0}, 0), 1u);
    EXPECT_EQ(kept({1, 3, 2, 0}, 100), 4u);
    EXPECT_EQ(kept({-INFINITY, 3, -INFINITY, -INFINITY}, 0), 1u);
    // Equal tokens have no law: version 1 cuts nothing.
    EXPECT_EQ(kept({1, 1, 1, 1}, 0), version == 1 ? 4u : 1u);
    EXPECT_EQ(kept({1e30f, -3e38f, 3e38f, 0}, 1), 1u);
  }
}

/// What DRY subtracts from the logit of each token, by its definition. `last`
/// are the tokens that it sees, and `unbroken` of them have no breaker.
static std::vector<double> dryPenalties(const SamplerOptions &options,
                                        const std::vector<int32_t> &all,
                                        int64_t unbroken, int32_t vocab) {
  std::vector<int32_t> last = all;
  if (options.dryLastN >= 0 && std::ssize(last) > options.dryLastN)
    last.erase(last.begin(), last.end() - options.dryLastN);
  std::vector<double> result(static_cast<size_t>(vocab));
  for (int64_t i = 0; i + 1 < std::ssize(last); ++i) {
    // The tokens up to the i-th one that are the last ones, too.
    int64_t length = 0;
    while (length <= i &&
           last[static_cast<size_t>(i - length)] ==
               last[last.size() - 1 - static_cast<size_t>(length)])
      ++length;
    length = std::min(length, unbroken);
    if (length < options.dryAllowedLength ||
        unbroken < options.dryAllowedLength)
      continue;
    double &most =
        result[static_cast<size_t>(last[static_cast<size_t>(i) + 1])];
    most = std::max(
        most, options.dryMultiplier *
                  std::pow(options.dryBase, length - options.dryAllowedLength));
  }
  return result;
}

TEST(Dry, LowersWhatWouldGoOnWithARepetition) {
  constexpr int32_t kVocab = 4;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const SamplerOptions options = {
        .temperature = 0,
        .dryMultiplier = 0.5,
        .dryBase = 1 + 0.25 * static_cast<double>(seed % 4),
        .dryAllowedLength = static_cast<int64_t>(seed % 3) + 1,
        .dryLastN = seed % 5 ? -1 : 20};
    Sampler sampler(options, kVocab, kVocab);
    sampler.reserve(80);
    std::vector<int32_t> all;
    for (uint64_t i = 0; i < 80; ++i) {
      const std::vector<double> expected =
          dryPenalties(options, all, std::ssize(all), kVocab);
      // The token of the least penalty wins; of equals, the first.
      const std::vector<float> logits(kVocab, 3);
      ASSERT_EQ(sampler.sample(logits, i),
                std::ranges::min_element(expected) - expected.begin())
          << seed << " " << i;
      // A logit just above the others by the penalty wins.
      const auto id = static_cast<size_t>(std::ranges::max_element(expected) -
                                          expected.begin());
      std::vector<float> raised(kVocab, -1000);
      raised[id] = 0;
      raised[(id + 1) % kVocab] =
          static_cast<float>(expected[(id + 1) % kVocab] - expected[id] - 1e-3 -
                             1e-5 * std::fabs(expected[id]));
      EXPECT_EQ(sampler.sample(raised, i), static_cast<int32_t>(id));
      all.push_back(
          static_cast<int32_t>(tokenRandoms(seed, 0, i).draw * (2 + i % 3)));
      if (i < 40)
        sampler.acceptPrompt(all.back());
      else
        sampler.acceptDrawn(all.back());
    }
    sampler.reset();
    EXPECT_EQ(sampler.sample(std::vector<float>{1, 2, 1, 1}, 0), 1);
  }
}

TEST(Dry, DoesNotLookPastABreaker) {
  const auto drawn = [](const std::shared_ptr<DryBreakers> &breakers,
                        const std::vector<int32_t> &prompt) {
    Sampler sampler({.temperature = 0,
                     .dryMultiplier = 1,
                     .dryAllowedLength = 2,
                     .dryBreakers = breakers},
                    8, 8);
    for (int32_t id : prompt)
      sampler.acceptPrompt(id);
    // 3 comes first unless it is penalized.
    return sampler.sample(std::vector<float>{0, 0, 0, 2, 1.5f, 0, 0, 0}, 0);
  };
  const std::vector<int32_t> repeats = {1, 2, 3, 0, 1, 2};
  EXPECT_EQ(drawn(nullptr, repeats), 4);
  const auto breakers = std::make_shared<DryBreakers>(8);
  EXPECT_EQ(drawn(breakers, repeats), 4);
  breakers->add(5, {6, 7});
  EXPECT_EQ(drawn(breakers, repeats), 4);
  // The breaker ends one token before the end.
  EXPECT_EQ(drawn(breakers, {5, 6, 7, 2, 3, 5, 6, 7, 2}), 3);
  // Without its last token, it is none; with all before it, two tokens are
  // left.
  EXPECT_EQ(drawn(breakers, {6, 2, 3, 5, 6, 2}), 4);
  EXPECT_EQ(drawn(breakers, {5, 6, 7, 1, 2, 3, 5, 6, 7, 1, 2}), 4);
  breakers->add(1, {});
  EXPECT_EQ(drawn(breakers, repeats), 3);
  // A breaker of one token is never penalized.
  breakers->add(3, {});
  EXPECT_EQ(drawn(breakers, {6, 2, 3, 5, 6, 2}), 3);
  EXPECT_TRUE(breakers->isWhole(3));
  EXPECT_FALSE(breakers->isWhole(5));
  EXPECT_FALSE(breakers->isWhole(99));
}

TEST(Dry, PassesNoNumber) {
  Sampler sampler({.temperature = 0, .dryMultiplier = 100, .dryBase = 100}, 2,
                  2);
  sampler.reserve(400);
  for (int i = 0; i < 400; ++i)
    sampler.acceptDrawn(0);
  // Both may be drawn, though the first has the lowest of all logits.
  EXPECT_EQ(sampler.sample(std::vector<float>{3e38f, -1e37f}, 0), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{3e38f, -INFINITY}, 0), 0);
}

TEST(BadWords, LoseTheirLastToken) {
  Sampler sampler({.temperature = 0, .badWords = {{4}, {1, 2, 3}, {0, 0}}}, 5,
                  5);
  const std::vector<float> logits = {4, 1, 2, 5, 6};
  // 4 is a word.
  EXPECT_EQ(sampler.sample(logits, 0), 3);
  sampler.acceptPrompt(1);
  sampler.acceptPrompt(2);
  EXPECT_EQ(sampler.sample(logits, 2), 0);
  sampler.acceptDrawn(0);
  EXPECT_EQ(sampler.sample(logits, 3), 3);
  EXPECT_EQ(sampler.sample(std::vector<float>{9, 1, 2, 5, 6}, 3), 3);
  sampler.reset();
  EXPECT_EQ(sampler.sample(std::vector<float>{9, 1, 2, 5, 6}, 0), 0);
  EXPECT_EQ(messageOf([] { Sampler({.badWords = {{1, 5}}}, 5, 5); }),
            "token id 5 is not in the vocabulary of 5");
  Sampler none({.badWords = {{0}, {1}}}, 2, 2);
  EXPECT_EQ(messageOf([&] { none.sample(std::vector<float>{1, 2}, 0); }),
            "all logits are -infinity: no token is left to draw");
}

TEST(Order, IsThatOfTheList) {
  const auto kept = [](SamplerOptions options,
                       const std::vector<std::string> &names) {
    options.samplers = parseSamplers(names);
    Sampler sampler(options, 4, 4);
    sampler.acceptPrompt(0);
    return sampler.keptTokens(std::vector<float>{4, 3, 2, 1}, 0).size();
  };
  // After a temperature of 2, more tokens have a tenth of the first.
  const SamplerOptions cuts = {.temperature = 2, .minP = 0.1};
  EXPECT_EQ(kept(cuts, {"temperature", "min_p"}), 4u);
  EXPECT_EQ(kept(cuts, {"min_p", "temperature"}), 3u);
  EXPECT_EQ(kept(cuts, {"min_p"}), 3u);
  EXPECT_EQ(kept(cuts, {}), 4u);
  // A penalty makes the first token the last.
  const SamplerOptions penalty = {.topK = 1, .repetitionPenalty = 100};
  const auto first = [](SamplerOptions options,
                        const std::vector<std::string> &names) {
    options.samplers = parseSamplers(names);
    Sampler sampler(options, 4, 4);
    sampler.acceptPrompt(0);
    return sampler.sample(std::vector<float>{4, 3, 2, 1}, 0);
  };
  EXPECT_EQ(first(penalty, {"penalties", "top_k"}), 1);
  EXPECT_EQ(first(penalty, {"top_k", "penalties"}), 0);
  EXPECT_EQ(first(penalty, {"top_k"}), 0);
  // A sampler may forbid all that a cut has kept; constraints come before it.
  SamplerOptions ngram = {.topK = 1, .noRepeatNgram = 1};
  EXPECT_EQ(messageOf([&] { first(ngram, {"top_k", "no_repeat_ngram"}); }),
            "all logits are -infinity: no token is left to draw");
  ngram.badWords = {{0}};
  EXPECT_EQ(first(ngram, {"top_k", "no_repeat_ngram"}), 1);
  // Greedy draws have no cuts.
  EXPECT_EQ(first({.temperature = 0, .repetitionPenalty = 100},
                  {"top_k", "penalties"}),
            1);
}

TEST(Order, UsualOneIsThatOfTheRows) {
  const std::vector<std::string> names(samplerNames().begin(),
                                       samplerNames().end());
  SamplerOptions options = {.temperature = 0.7f,
                            .topK = 50,
                            .topP = 0.9,
                            .repetitionPenalty = 1.3f,
                            .typicalP = 0.8,
                            .xtcProbability = 0.5,
                            .noRepeatNgram = 3,
                            .dryMultiplier = 0.8};
  SamplerOptions listed = options;
  listed.samplers = parseSamplers(names);
  Sampler usual(options, 100, 100), same(listed, 100, 100);
  for (uint64_t position = 0; position < 300; ++position) {
    std::vector<float> logits;
    for (uint64_t id = 0; id < 100; ++id)
      logits.push_back(
          static_cast<float>(5 * tokenRandoms(position, 7, id).draw));
    const int32_t drawn = usual.sample(logits, position);
    ASSERT_EQ(same.sample(logits, position), drawn);
    usual.acceptDrawn(drawn);
    same.acceptDrawn(drawn);
  }
}

TEST(Order, RefusesUnknownNames) {
  const auto error = [](const std::vector<std::string> &names) {
    return messageOf([&] { parseSamplers(names); });
  };
  EXPECT_EQ(error({"top_k", "infill"}),
            "there is no sampler \"infill\": the samplers are penalties, "
            "no_repeat_ngram, exponential_decay, dry, temperature, "
            "top_n_sigma, top_h, top_k, top_p, min_p, typ_p, epsilon_cutoff, "
            "eta_cutoff, xtc");
  EXPECT_EQ(error({"top_k", "top_k"}),
            "the sampler top_k comes twice when each comes once");
  EXPECT_EQ(error({}), "");
}

TEST(Sampler, EndsBecomeMoreLikely) {
  const std::vector<int32_t> ends = {1};
  for (float end : {0.5f, -0.5f}) {
    Sampler sampler({.temperature = 0, .decayStart = 2, .decayFactor = 1.5}, 2,
                    2, 0, ends);
    const std::vector<float> logits = {1, end};
    for (int64_t drawn = 0; drawn < 9; ++drawn) {
      const double gain = drawn > 2 ? std::pow(1.5, drawn - 2) - 1 : 0;
      EXPECT_EQ(sampler.sample(logits, 0), end + 0.5 * gain > 1) << drawn;
      sampler.acceptDrawn(0);
    }
  }
  // The factor may pass all numbers.
  Sampler sampler({.temperature = 0, .decayFactor = 100}, 2, 2, 0, ends);
  for (int i = 0; i < 400; ++i)
    sampler.acceptDrawn(0);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, -1}, 0), 1);
}

TEST(Sampler, TemperatureFollowsTheEntropy) {
  const std::vector<float> logits = {2, 1.5f, 0, -3};
  double total = 0, entropy = 0;
  for (float logit : logits)
    total += std::exp(logit - 2.0);
  for (float logit : logits) {
    const double p = std::exp(logit - 2.0) / total;
    entropy -= p * std::log(p);
  }
  for (float range : {0.25f, 0.75f, 2.f})
    for (double exponent : {0.5, 1.0, 2.0}) {
      const double least = std::max(0.0, 0.75 - range), most = 0.75 + range;
      const auto temperature = static_cast<float>(
          least + (most - least) * std::pow(entropy / std::log(4.0), exponent));
      Sampler changing({.temperature = 0.75f,
                        .temperatureRange = range,
                        .temperatureExponent = exponent},
                       4, 4);
      Sampler constant({.temperature = temperature}, 4, 4);
      for (uint64_t position = 0; position < 200; ++position)
        EXPECT_EQ(changing.sample(logits, position),
                  constant.sample(logits, position));
    }
  // One token has no entropy, and this range leaves no temperature.
  Sampler one({.temperature = 0.5f, .temperatureRange = 1}, 2, 2);
  EXPECT_EQ(one.sample(std::vector<float>{-INFINITY, 3}, 0), 1);
}
