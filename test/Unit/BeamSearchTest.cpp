//===- BeamSearchTest.cpp - Beam search without an engine -----------------===//

#include "engine/BeamSearch.h"
#include "HandmadeArtifact.h"
#include "TempDir.h"

#include "qwen/Numerics/Doubles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

using namespace qwen;
using namespace qwen::test;

namespace {
using Ids = std::vector<int32_t>;

/// A model: the log-probabilities after some tokens.
using Model = std::function<std::vector<float>(const Ids &)>;

/// Token 0 ends an answer; likelier tokens depend on all tokens before.
std::vector<float> hashRow(const Ids &ids, size_t vocab) {
  uint64_t hash = 0;
  for (int32_t id : ids)
    hash = (hash + static_cast<uint64_t>(id) + 1) * 0x9E3779B97F4A7C15 ^
           hash >> 29;
  std::vector<float> row;
  double sum = 0;
  for (size_t id = 0; id < vocab; ++id) {
    const uint64_t own = (hash + id + 1) * 0xBF58476D1CE4E5B9;
    row.push_back(static_cast<float>(own >> 40) * 0x1p-22f);
    sum += std::exp(double{row.back()});
  }
  for (float &value : row)
    value = static_cast<float>(value - std::log(sum));
  return row;
}

struct Search {
  BeamOptions options;
  Ids ends = {0};
  int64_t most = 6;
  size_t steps = 0;

  std::vector<BeamTokens> run(const Model &model) {
    BeamSearch search(options, ends, most);
    std::vector<std::vector<BeamCandidate>> offers;
    while (!search.isDone()) {
      offers.clear();
      for (const BeamTokens &beam : search.beams()) {
        const std::vector<float> row = model(beam.ids);
        std::vector<BeamCandidate> &offer = offers.emplace_back();
        for (size_t id = 0; id < row.size(); ++id)
          if (row[id] != -INFINITY)
            offer.push_back({static_cast<int32_t>(id), row[id], row[id]});
        std::ranges::sort(offer, {}, [](const BeamCandidate &of) {
          return std::pair(-of.value, of.id);
        });
        offer.resize(std::min(offer.size(), search.candidates()));
      }
      search.advance(offers,
                     [](size_t, int32_t, float value) { return value; });
      ++steps;
    }
    return search.answers(static_cast<size_t>(options.beams));
  }
};

std::vector<Ids> idsOf(const std::vector<BeamTokens> &answers) {
  std::vector<Ids> ids;
  for (const BeamTokens &answer : answers)
    ids.push_back(answer.ids);
  return ids;
}

/// The same row after all tokens.
Model constant(const std::vector<float> &row) {
  return [row](const Ids &) { return row; };
}
} // namespace

// As many beams as there are sequences find the best of all answers.
TEST(BeamSearch, FindsTheBestOfAllAnswers) {
  const Model model = [](const Ids &ids) { return hashRow(ids, 4); };
  for (double penalty : {0.0, 1.0, 2.0, -1.0}) {
    Search search{.options = {.beams = 64,
                              .lengthPenalty = penalty,
                              .earlyStopping = EarlyStopping::Never},
                  .most = 3};
    // All sequences that end with token 0 or have 3 tokens.
    std::vector<std::pair<double, Ids>> all;
    const std::function<void(const Ids &, double)> visit = [&](const Ids &ids,
                                                               double sum) {
      if (!ids.empty() && (ids.back() == 0 || ids.size() == 3)) {
        all.emplace_back(
            sum / std::pow(static_cast<double>(ids.size()), penalty), ids);
        return;
      }
      const std::vector<float> row = model(ids);
      for (int32_t id = 0; id < 4; ++id) {
        Ids longer = ids;
        longer.push_back(id);
        visit(longer, sum + row[static_cast<size_t>(id)]);
      }
    };
    visit({}, 0);
    std::ranges::sort(all, std::greater());
    const std::vector<BeamTokens> answers = search.run(model);
    ASSERT_EQ(answers.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(answers[i].ids, all[i].second);
      EXPECT_NEAR(answers[i].score, all[i].first, 1e-9);
      EXPECT_EQ(answers[i].logprobs.size(), answers[i].ids.size());
    }
  }
}

TEST(BeamSearch, TwoBeamsAreGreedyForOneStep) {
  // After 1, all is unlikely; after 2, token 3 is sure.
  const Model model = [](const Ids &ids) -> std::vector<float> {
    if (ids.empty())
      return {-9, -0.5f, -1, -9};
    if (ids.back() == 1)
      return {-2, -2, -2, -2};
    return {-9, -9, -9, -0.01f};
  };
  Search search{.options = {.beams = 2}, .most = 2};
  const std::vector<BeamTokens> answers = search.run(model);
  EXPECT_EQ(answers[0].ids, Ids({2, 3}));
  EXPECT_EQ(answers[1].ids, Ids({1, 0}));
  EXPECT_EQ(answers[1].logprobs, std::vector<float>({-0.5f, -2}));
}

TEST(BeamSearch, TiesGoToTheLowerBeamThenTheLowerId) {
  Search search{.options = {.beams = 3}, .ends = {}, .most = 2};
  EXPECT_EQ(idsOf(search.run(constant({-1, -1, -1, -1}))),
            std::vector<Ids>({{0, 0}, {0, 1}, {0, 2}}));
}

TEST(BeamSearch, OnlyTheFirstCandidatesEndAnAnswer) {
  // The end is third of all candidates, behind those that go on.
  Search search{.options = {.beams = 2}, .most = 4};
  for (const BeamTokens &answer : search.run(constant({-3, -1, -1.5f, -9, -9})))
    EXPECT_EQ(answer.ids.size(), 4u);
  // Where it is second, it does, and the third goes on in its place.
  search.options.lengthPenalty = 0;
  EXPECT_EQ(idsOf(search.run(constant({-1.2f, -1, -1.5f, -9, -9}))),
            std::vector<Ids>({{0}, {1, 0}}));
}

TEST(BeamSearch, EndsEarlyByItsRule) {
  // Each end is as likely as the token that goes on.
  const Model model = constant({-0.7f, -0.7f, -5, -5});
  Search first{.options = {.beams = 2, .earlyStopping = EarlyStopping::True},
               .most = 50};
  first.run(model);
  EXPECT_EQ(first.steps, 2u);
  // The score of a beam is the mean of its log-probabilities, so one with
  // fewer unlikely tokens may come until the end.
  Search heuristic{.options = {.beams = 2}, .most = 50};
  heuristic.run(model);
  EXPECT_GE(heuristic.steps, first.steps);
  Search never{.options = {.beams = 2, .earlyStopping = EarlyStopping::Never},
               .most = 50};
  never.run(model);
  EXPECT_GE(never.steps, heuristic.steps);
  // Without a penalty, a sum only falls.
  Search sum{.options = {.beams = 2,
                         .lengthPenalty = 0,
                         .earlyStopping = EarlyStopping::Never},
             .most = 50};
  sum.run(model);
  EXPECT_EQ(sum.steps, 2u);
}

TEST(BeamSearch, GroupsAvoidTheTokensOfEarlierOnes) {
  const Model model = constant({-9, -1, -1.4f, -1.5f, -4});
  Search search{.options = {.beams = 3, .groups = 3, .diversityPenalty = 0.6},
                .most = 1};
  EXPECT_EQ(idsOf(search.run(model)), std::vector<Ids>({{1}, {2}, {3}}));
  Search weak{.options = {.beams = 3, .groups = 3, .diversityPenalty = 0.1},
              .most = 1};
  EXPECT_EQ(idsOf(weak.run(model)), std::vector<Ids>({{1}, {1}, {1}}));
  // The penalty stays in the sum.
  EXPECT_NEAR(weak.run(model)[2].score, -1.2, 1e-6);
  EXPECT_EQ(weak.run(model)[2].logprobs, std::vector<float>({-1}));
}

TEST(BeamSearch, GroupsKeepTheirOwnAnswers) {
  const Model model = [](const Ids &ids) { return hashRow(ids, 12); };
  for (EarlyStopping early :
       {EarlyStopping::False, EarlyStopping::True, EarlyStopping::Never}) {
    Search search{.options = {.beams = 6,
                              .groups = 3,
                              .diversityPenalty = 0.5,
                              .earlyStopping = early},
                  .most = 9};
    const std::vector<BeamTokens> answers = search.run(model);
    EXPECT_EQ(answers.size(), 6u);
    EXPECT_TRUE(
        std::ranges::is_sorted(answers, std::greater(), &BeamTokens::score));
  }
}

TEST(BeamSearch, GoesOnWithFewerBeamsWhereTokensLack) {
  const float none = -INFINITY;
  Search search{.options = {.beams = 4}, .most = 3};
  EXPECT_EQ(idsOf(search.run(constant({none, -0.5f, none, none}))),
            std::vector<Ids>({{1, 1, 1}}));
  EXPECT_TRUE(search.run(constant({none, none})).empty());
}

TEST(BeamSearch, RefusesOptionsThatDoNotFit) {
  const auto error = [](const BeamOptions &options, int64_t answers = 1) {
    return messageOf([&] { options.check(answers); });
  };
  EXPECT_EQ(error({.beams = 0}), "num-beams is 0 when 1 to 64 is needed");
  EXPECT_EQ(error({.beams = 65}), "num-beams is 65 when 1 to 64 is needed");
  EXPECT_EQ(error({.beams = 4, .groups = 3, .diversityPenalty = 1}),
            "num-beam-groups is 3 when a divisor of num-beams (4) is needed");
  EXPECT_EQ(error({.beams = 4, .groups = 2}),
            "diversity-penalty is 0 when more than 0 with num-beam-groups is "
            "needed");
  EXPECT_EQ(error({.beams = 4, .diversityPenalty = 1}),
            "diversity-penalty is 1 when 0 without num-beam-groups is "
            "needed");
  EXPECT_EQ(error({.lengthPenalty = NAN}),
            "length-penalty is nan when -10 to 10 is needed");
  EXPECT_EQ(error({.beams = 2}, 3),
            "the number of answers is 3 when 1 to num-beams (2) is needed");
  EXPECT_EQ(error({}), "");
}
