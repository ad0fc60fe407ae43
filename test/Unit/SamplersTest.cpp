//===- SamplersTest.cpp - What samplers keep, beside other programs -------===//
//
// test/Inputs/samplers/make_samplers.py records which tokens transformers and
// llama.cpp keep of rows of logits that it and this file make from their
// numbers.
//
//===----------------------------------------------------------------------===//

#include "Sampled.h"
#include "engine/Sampler.h"
#include "engine/samplers/DryBreakers.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

using namespace qwen;

static constexpr const char *kCases =
    QWEN_SOURCE_DIR "/test/Inputs/samplers/cases.json";
static constexpr const char *kRecord =
    QWEN_SOURCE_DIR "/test/Inputs/samplers/kept.bin";
static constexpr const char *kDraws =
    QWEN_SOURCE_DIR "/test/Inputs/samplers/draws.json";

static const nlohmann::json &cases() {
  static const auto json = nlohmann::json::parse(std::ifstream(kCases));
  return json;
}

/// Samplers that change logits are recorded by what min-p then keeps.
static bool changesLogits(const nlohmann::json &setting) {
  return setting.contains("min_p");
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

namespace {
/// What is kept of a row. The number 0 stands for a row that is not compared,
/// or with the hash 1 for one of which nothing is left.
struct Kept {
  uint32_t count, hash;
  bool operator==(const Kept &) const = default;
  bool isCompared() const { return count > 0 || hash == 1; }
};

/// What comes before a row.
struct History {
  std::vector<int32_t> ids;
  size_t prompt = 0;
  std::vector<int32_t> ends = {};
  std::vector<std::vector<int32_t>> badWords = {};
  std::shared_ptr<DryBreakers> breakers = nullptr;
};
} // namespace

static size_t rowCount() {
  size_t count = 0;
  for (const auto &size : cases()["sizes"])
    count += size["rows"].get<size_t>();
  return count;
}

/// The record of a sampler: by row.
static std::vector<Kept> readRecord(size_t sampler) {
  std::ifstream file(kRecord, std::ios::binary);
  std::vector<Kept> record(rowCount());
  const size_t bytes = record.size() * 8;
  file.seekg(static_cast<std::streamoff>(sampler * bytes));
  for (Kept &kept : record) {
    uint8_t b[8] = {};
    file.read(reinterpret_cast<char *>(b), 8);
    const auto word = [&](size_t i) {
      return uint32_t{b[i]} | uint32_t{b[i + 1]} << 8 |
             uint32_t{b[i + 2]} << 16 | uint32_t{b[i + 3]} << 24;
    };
    kept = {word(0), word(4)};
  }
  EXPECT_TRUE(file) << "kept.bin ends early";
  return record;
}

/// make_row of make_samplers.py, which says what the steps are for.
static void makeRow(uint32_t row, std::vector<float> &logits) {
  const std::array<uint32_t, 2> key = {0x726F7773, row};
  const uint32_t kind = row % 16;
  const std::array<uint32_t, 4> setting = philox4x32({0, 1, 0, 0}, key);
  const uint32_t step = 15 + setting[2] % 4;
  const uint32_t share = kind < 15 ? 4096u >> setting[3] % 12 : 0;
  for (uint32_t id = 0; id < logits.size(); ++id) {
    const std::array<uint32_t, 4> words = philox4x32({id, 0, 0, 0}, key);
    int64_t units = -(1 << 21);
    for (uint32_t word : words)
      units += word >> 12;
    if (kind >= 6 && kind < 9) {
      units >>= 1 + setting[1] % 4;
    } else {
      units += words[0] % 64 == 0 ? int64_t{words[1] % 4096} << 9 : 0;
      units = units * (1 + setting[0] % 8) >> 2;
    }
    uint32_t fine = words[3] % 1024;
    if (kind >= 9 && kind < 12) {
      units = units >> step << step;
      fine = 0;
    }
    const bool left = kind < 12 || words[2] % 4096 < share ||
                      id == setting[1] % logits.size();
    logits[id] = left ? static_cast<float>(units) * 0x1p-18f +
                            static_cast<float>(fine) * 0x1p-30f
                      : -INFINITY;
  }
}

/// History of make_samplers.py.
static History makeHistory(uint32_t row, const std::vector<float> &logits) {
  const std::array<uint32_t, 2> key = {0x726F7773, row};
  const std::array<uint32_t, 4> setting = philox4x32({0, 2, 0, 0}, key);
  std::vector<int32_t> likeliest(logits.size());
  std::iota(likeliest.begin(), likeliest.end(), 0);
  const size_t kinds = 2 + setting[0] % 11;
  std::ranges::partial_sort(
      likeliest, likeliest.begin() + static_cast<std::ptrdiff_t>(kinds),
      [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)];
        const float y = logits[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
      });
  History history;
  for (uint32_t i = 0; i < 1 + setting[1] % 64; ++i)
    history.ids.push_back(likeliest[philox4x32({i, 3, 0, 0}, key)[0] % kinds]);
  history.prompt = setting[2] % (history.ids.size() + 1);
  history.ends = {likeliest[0], likeliest[1]};
  if (row % 2) {
    history.breakers = std::make_shared<DryBreakers>(logits.size());
    history.breakers->add(history.ids.front(), {});
    history.breakers->add(likeliest[0], {likeliest[1]});
  }
  const auto part = [&](size_t begin, size_t count) {
    const auto ids = std::span(history.ids).subspan(begin);
    const auto few = ids.first(std::min(count, ids.size()));
    return std::vector<int32_t>(few.begin(), few.end());
  };
  const size_t count = history.ids.size();
  history.badWords = {part(count - 1, 1),
                      part(count - std::min<size_t>(count, 2), 2), part(0, 3)};
  history.badWords[0].push_back(likeliest[0]);
  history.badWords[1].push_back(likeliest[1]);
  if (row % 4)
    history.badWords.push_back({likeliest[1]});
  return history;
}

static Kept describe(const std::vector<int32_t> &kept,
                     const std::vector<float> &logits, bool mayTie) {
  std::vector<bool> isKept(logits.size());
  for (int32_t id : kept)
    isKept[static_cast<size_t>(id)] = true;
  // All samplers that do not change logits keep a range, so only its ends tie.
  const float most = logits[static_cast<size_t>(kept.front())];
  const float least = logits[static_cast<size_t>(kept.back())];
  bool mostTies = false, leastTies = false;
  for (size_t id = 0; mayTie && id < logits.size(); ++id) {
    mostTies |= !isKept[id] && logits[id] == most;
    leastTies |= !isKept[id] && logits[id] == least;
  }
  uint32_t hash = 0;
  for (int32_t id : kept) {
    const float logit = logits[static_cast<size_t>(id)];
    if ((mostTies && logit == most) || (leastTies && logit == least))
      continue;
    auto h = static_cast<uint32_t>(id);
    h = (h ^ h >> 16) * 0x85EBCA6B;
    h = (h ^ h >> 13) * 0xC2B2AE35;
    hash += h ^ h >> 16;
  }
  return {static_cast<uint32_t>(kept.size()), hash};
}

static bool ordered(const std::vector<int32_t> &kept,
                    const std::vector<float> &logits) {
  return std::ranges::is_sorted(kept, [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
}

static SamplerOptions optionsOf(const nlohmann::json &setting,
                                const History &history = {}) {
  SamplerOptions options;
  size_t known = 0;
#define QWEN_SAMPLING(Type, Field, Name, ...)                                  \
  if (setting.contains(#Name)) {                                               \
    options.Field = static_cast<Type>(setting[#Name].get<double>());           \
    ++known;                                                                   \
  }
#include "qwen/ABI/SamplerOptions.def"
  if (setting.contains("bad_words")) {
    options.badWords = history.badWords;
    ++known;
  }
  options.dryBreakers = history.breakers;
  EXPECT_EQ(known, setting.size()) << setting;
  return options;
}

/// A sampler behind the tokens before a row.
static Sampler samplerAt(const SamplerOptions &options, size_t tokens,
                         const History &history) {
  const auto count = static_cast<int64_t>(tokens);
  Sampler sampler(options, count, count, 0, history.ends);
  for (size_t i = 0; i < history.ids.size(); ++i) {
    if (i < history.prompt)
      sampler.acceptPrompt(history.ids[i]);
    else
      sampler.acceptDrawn(history.ids[i]);
  }
  return sampler;
}

/// What a sampler keeps of a row: of Mirostat, after three draws.
static Kept keptOf(const nlohmann::json &setting, uint32_t row,
                   const std::vector<float> &logits, const History &history) {
  SamplerOptions options = optionsOf(setting, history);
  options.seed = row;
  Sampler sampler = samplerAt(options, logits.size(),
                              changesLogits(setting) ? history : History());
  uint64_t position = options.mirostat ? 0 : row;
  for (; options.mirostat && position < 3; ++position)
    sampler.acceptDrawn(sampler.sample(logits, position));
  try {
    const std::vector<int32_t> kept = sampler.keptTokens(logits, position);
    if (!changesLogits(setting))
      EXPECT_TRUE(ordered(kept, logits)) << setting << ", row " << row;
    return describe(kept, logits, !changesLogits(setting));
  } catch (const Error &) {
    return {0, 1};
  }
}

//===----------------------------------------------------------------------===//
// Kept tokens
//===----------------------------------------------------------------------===//

namespace {
/// The parameter is an index of a size.
class Samplers : public testing::TestWithParam<size_t> {};
} // namespace

TEST_P(Samplers, KeepWhatOtherProgramsKeep) {
  const auto &sizes = cases()["sizes"];
  const auto tokens = sizes[GetParam()]["tokens"].get<int64_t>();
  const auto rows = sizes[GetParam()]["rows"].get<size_t>();
  size_t firstRow = 0;
  for (size_t size = 0; size < GetParam(); ++size)
    firstRow += sizes[size]["rows"].get<size_t>();
  const auto &samplers = cases()["samplers"];
  std::vector<std::vector<Kept>> records;
  records.reserve(samplers.size());
  for (size_t i = 0; i < samplers.size(); ++i)
    records.push_back(readRecord(i));
  std::vector<size_t> compared(samplers.size()), different(samplers.size());
  std::vector<float> logits(static_cast<size_t>(tokens));
  // Each 16 rows have the same settings.
  const size_t step = test::isSampled() ? 21 : 1;
  for (size_t row = firstRow; row < firstRow + rows; row += step) {
    const auto number = static_cast<uint32_t>(row);
    makeRow(number, logits);
    const History history = makeHistory(number, logits);
    for (size_t i = 0; i < samplers.size(); ++i) {
      const Kept expected = records[i][row];
      if (!expected.isCompared())
        continue;
      const auto &settings = samplers[i]["settings"];
      const auto &setting = settings[row / 16 % settings.size()];
      const Kept found = keptOf(setting, number, logits, history);
      ++compared[i];
      if (found != expected && ++different[i] <= 5)
        ADD_FAILURE() << setting << " keeps " << found.count
                      << " tokens of row " << row << " when it should keep "
                      << expected.count << ", hash " << found.hash << " when "
                      << expected.hash;
    }
  }
  for (size_t i = 0; i < samplers.size(); ++i)
    std::printf("%s: %zu of %zu rows of %lld tokens compared, %zu differ\n",
                samplers[i]["name"].get<std::string>().c_str(), compared[i],
                rows, static_cast<long long>(tokens), different[i]);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Samplers,
                         testing::Range<size_t>(0, cases()["sizes"].size(), 1),
                         [](const auto &info) {
                           return to_string(
                               cases()["sizes"][info.param]["tokens"]);
                         });

TEST(SamplersRecord, HasEnoughRows) {
  for (size_t i = 0; i < cases()["samplers"].size(); ++i)
    EXPECT_GE(std::ranges::count_if(
                  readRecord(i), [](Kept kept) { return kept.isCompared(); }),
              9500)
        << cases()["samplers"][i]["name"];
}

TEST(SamplersVectors, AreThoseOfLlamaCpp) {
  // tests/test-sampling.cpp of llama.cpp: what is kept of four probabilities.
  const auto kept = [](const SamplerOptions &options,
                       std::initializer_list<float> probabilities) {
    std::vector<float> logits;
    for (float p : probabilities)
      logits.push_back(std::log(p));
    return Sampler(options, 4, 4).keptTokens(logits, 0);
  };
  using Ids = std::vector<int32_t>;
  const auto xtc = [&](double threshold) {
    return kept({.xtcProbability = 1, .xtcThreshold = threshold},
                {0.4f, 0.3f, 0.2f, 0.1f});
  };
  EXPECT_EQ(xtc(0.09), (Ids{3}));
  EXPECT_EQ(xtc(0.19), (Ids{2, 3}));
  EXPECT_EQ(xtc(0.29), (Ids{1, 2, 3}));
  EXPECT_EQ(xtc(0.39), (Ids{0, 1, 2, 3}));
  const auto typical = [&](double mass,
                           std::initializer_list<float> probabilities) {
    return kept({.typicalP = mass}, probabilities);
  };
  EXPECT_EQ(typical(0.5, {0.97f, 0.01f, 0.01f, 0.01f}), (Ids{0}));
  EXPECT_EQ(typical(0.5, {0.4f, 0.2f, 0.2f, 0.2f}), (Ids{1, 2, 3}));
  const auto sigma = [&](double n) {
    return kept({.topNSigma = n}, {0.1f, 0.2f, 0.3f, 0.4f});
  };
  EXPECT_EQ(sigma(1), (Ids{3, 2}));
  EXPECT_EQ(sigma(0), (Ids{3, 2, 1, 0}));
  EXPECT_EQ(sigma(3), (Ids{3, 2, 1, 0}));
}

/// Expects that a sampler, after an answer, makes a token of `tokens` equal
/// ones this many times as likely as the last one: min-p keeps it up to there.
static void expectRatio(SamplerOptions options, size_t tokens,
                        const std::vector<int32_t> &answer, int32_t id,
                        double ratio) {
  const auto keeps = [&](double least) {
    options.minP = least;
    const History history = {.ids = answer};
    const std::vector<float> logits(tokens,
                                    std::log(1 / static_cast<float>(tokens)));
    return std::ranges::count(
        samplerAt(options, tokens, history).keptTokens(logits, 0), id);
  };
  EXPECT_EQ(keeps(ratio * 0.999), 1) << "token " << id;
  EXPECT_EQ(ratio < 1 ? keeps(ratio * 1.001) : 0, 0) << "token " << id;
}

TEST(SamplersVectors, OfPenaltiesAreThoseOfLlamaCpp) {
  const SamplerOptions penalties = {.frequencyPenalty = 5,
                                    .presencePenalty = 5};
  expectRatio(penalties, 5, {0}, 0, std::exp(-10));
  expectRatio(penalties, 5, {0, 1, 2}, 1, std::exp(-10));
  expectRatio(penalties, 5, {0, 1, 2, 0, 0}, 0, std::exp(-20));
  expectRatio(penalties, 5, {0, 1, 2, 0, 0}, 2, std::exp(-10));
  SamplerOptions dry = {.dryMultiplier = 1, .dryBase = 1.1};
  expectRatio(dry, 4, {0, 1, 2, 0, 1}, 2, 0.109232 / 0.296923);
  expectRatio(dry, 4, {0, 1}, 0, 1);
  dry.dryMultiplier = 2;
  expectRatio(dry, 5, {0, 1, 2, 0, 1}, 2, 0.032727 / 0.241818);
  dry.dryMultiplier = 1;
  dry.dryAllowedLength = 4;
  expectRatio(dry, 5, {0, 1, 2, 3, 4, 0, 1}, 2, 1);
  const auto breakers = std::make_shared<DryBreakers>(5);
  breakers->add(3, {});
  dry = {.dryMultiplier = 1, .dryBase = 1.1};
  dry.dryBreakers = breakers;
  expectRatio(dry, 5, {0, 1, 3, 4, 0, 1}, 3, 1);
}

//===----------------------------------------------------------------------===//
// Draws
//===----------------------------------------------------------------------===//

TEST(SamplersCoin, IsOfWordsTwoAndThree) {
  constexpr uint64_t kSeed = 0x299f31d0a4093822, kAnswer = 5;
  const SamplerOptions options = {
      .xtcProbability = 0.3, .xtcThreshold = 0.1, .seed = kSeed};
  Sampler sampler(options, 3, 3, kAnswer);
  const std::vector<float> logits = {1, 2, 0};
  int heads = 0;
  for (uint32_t position = 0; position < 20000; ++position) {
    const std::array<uint32_t, 4> words =
        philox4x32({kAnswer, 0, position, 0}, {0xa4093822, 0x299f31d0});
    const uint64_t bits = uint64_t{words[2]} << 32 | words[3];
    const bool coin = static_cast<double>(bits >> 11) * 0x1p-53 < 0.3;
    heads += coin;
    // Two tokens exceed the threshold.
    EXPECT_EQ(sampler.keptTokens(logits, position).size(), coin ? 2u : 3u);
  }
  EXPECT_NEAR(heads, 6000, 3 * std::sqrt(20000 * 0.3 * 0.7));
}

/// Adds `share` times the softmax over the kept tokens.
static void addSoftmax(const std::vector<int32_t> &kept,
                       const std::vector<float> &logits, double share,
                       std::vector<double> &probabilities) {
  double total = 0;
  for (int32_t id : kept)
    total += std::exp(double{logits[static_cast<size_t>(id)]});
  for (int32_t id : kept) {
    const auto i = static_cast<size_t>(id);
    probabilities[i] += share * std::exp(double{logits[i]}) / total;
  }
}

/// The chi-squared statistic of counts, as a standard normal deviation (Wilson
/// and Hilferty, "The distribution of chi-square", 1931). Prints it.
static double deviation(const std::string &name, double draws,
                        const std::vector<double> &counts,
                        const std::vector<double> &probabilities) {
  double statistic = 0, rareCount = 0, rareExpected = 0;
  int bins = 0;
  const auto addBin = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++bins;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * probabilities[i];
    EXPECT_TRUE(expected > 0 || counts[i] == 0) << name << " draws " << i;
    if (expected >= 5) {
      addBin(counts[i], expected);
    } else {
      rareCount += counts[i];
      rareExpected += expected;
    }
  }
  if (rareExpected > 0)
    addBin(rareCount, rareExpected);
  const double freedom = bins - 1;
  const double result =
      (std::cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) /
      std::sqrt(2 / (9 * freedom));
  std::printf("%s: chi squared %.1f of %.0f degrees of freedom in %.0f draws, "
              "p %.3f\n",
              name.c_str(), statistic, freedom, draws,
              std::erfc(result / std::sqrt(2.)) / 2);
  return result;
}

/// Draws from a row, and compares with its probabilities.
static void expectDraws(const std::string &name, Sampler sampler,
                        const std::vector<float> &logits,
                        const std::vector<double> &probabilities) {
  const int draws = std::getenv("QWEN_TEST_FULL") ? 1000000
                    : test::isSampled()           ? 2000
                                                  : 10000;
  std::vector<double> counts(logits.size());
  for (int i = 0; i < draws; ++i)
    ++counts[static_cast<size_t>(
        sampler.sample(logits, static_cast<uint64_t>(i)))];
  EXPECT_LT(deviation(name, draws, counts, probabilities), 4) << name;
}

TEST(SamplersDraws, FollowTheDistributionOfKeptTokens) {
  constexpr int64_t kTokens = 320;
  std::vector<float> logits(kTokens);
  for (const auto &sampler : cases()["samplers"]) {
    const auto &setting = sampler["settings"][2];
    if (changesLogits(setting))
      continue;
    SamplerOptions options = optionsOf(setting);
    // A row of which the sampler keeps some tokens.
    std::vector<int32_t> kept;
    for (uint32_t row = 0;
         row < 1000 && (kept.size() < 8 || kept.size() > kTokens - 2); ++row) {
      makeRow(row, logits);
      kept = Sampler(options, kTokens, kTokens).keptTokens(logits, 0);
    }
    std::vector<double> probabilities(kTokens);
    const bool tosses = options.xtcProbability > 0;
    addSoftmax(kept, logits, tosses ? 0.5 : 1, probabilities);
    if (tosses) {
      options.xtcProbability = 0.5;
      std::vector<int32_t> all(kTokens);
      std::iota(all.begin(), all.end(), 0);
      addSoftmax(all, logits, 0.5, probabilities);
    }
    options.seed = 41;
    expectDraws(sampler["name"], Sampler(options, kTokens, kTokens), logits,
                probabilities);
  }
}

TEST(SamplersDraws, FollowTheRecordedDistribution) {
  for (const auto &draws : nlohmann::json::parse(std::ifstream(kDraws))) {
    const auto row = draws["row"].get<uint32_t>();
    const auto probabilities =
        draws["probabilities"].get<std::vector<double>>();
    std::vector<float> logits(probabilities.size());
    makeRow(row, logits);
    const History history = makeHistory(row, logits);
    SamplerOptions options = optionsOf(draws["setting"], history);
    options.seed = 41;
    expectDraws(draws["name"], samplerAt(options, logits.size(), history),
                logits, probabilities);
  }
}
