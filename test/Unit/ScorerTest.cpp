//===- ScorerTest.cpp - Scores of continuations ---------------------------===//

#include "tasks/Scorer.h"
#include "HashModel.h"
#include "engine/Logprobs.h"

#include <gtest/gtest.h>

#include <random>

using namespace qwen;
using namespace qwen::tasks;
using namespace qwen::test;

using Requests = std::vector<ScoreRequest>;

/// The score of a request without an engine.
static Likelihood scoreOf(const ScoreRequest &request) {
  uint64_t hash = 0;
  for (int32_t id : request.context)
    hash = hashAfter(hash, id);
  Likelihood likelihood;
  std::vector<float> logits(40);
  for (int32_t id : request.continuation) {
    for (int32_t i = 0; i < 40; ++i)
      logits[static_cast<size_t>(i)] = hashLogit(hash, i);
    likelihood.sum +=
        static_cast<float>(logits[static_cast<size_t>(id)] - logSumExp(logits));
    likelihood.isGreedy &= std::ranges::max_element(logits) ==
                           logits.begin() + static_cast<ptrdiff_t>(id);
    hash = hashAfter(hash, id);
  }
  return likelihood;
}

/// Documents whose requests share contexts, parts of continuations, or nothing.
static std::vector<Requests> makeDocuments() {
  std::mt19937 random(3);
  const auto tokens = [&](size_t count) {
    std::vector<int32_t> ids(count);
    for (int32_t &id : ids)
      id = static_cast<int32_t>(random() % 37);
    return ids;
  };
  std::vector<Requests> documents;
  const std::vector<int32_t> examples = tokens(150);
  for (size_t i = 0; i < 12; ++i) {
    std::vector<int32_t> context = i % 2 ? examples : tokens(1 + i);
    context.insert(context.end(), {static_cast<int32_t>(i), 5});
    const std::vector<int32_t> longer = tokens(80);
    documents.push_back({{context, {1}},
                         {context, {2}},
                         {context, longer},
                         {context, {longer[0], longer[1], 7}},
                         {{3}, {9, 9}},
                         {context, {2, 1}}});
  }
  return documents;
}

TEST(Scorer, SharesWhatRequestsHaveInCommon) {
  const std::vector<Requests> documents = makeDocuments();
  for (bool fixed : {false, true})
    for (int32_t sequences : {1, 5}) {
      const Manifest manifest = hashManifest(400, 64, fixed);
      ThreadPool pool(1);
      Engine engine(manifest, nullptr,
                    std::vector{fixed ? fixedHashForward : hashForward}, pool,
                    {.sequences = sequences, .snapshotBytes = 4096});
      size_t started = 0, ended = 0;
      scoreDocuments(
          engine,
          [&]() -> std::optional<Requests> {
            if (started == documents.size())
              return std::nullopt;
            return documents[started++];
          },
          [&](size_t document, const std::vector<Likelihood> &scores) {
            ++ended;
            ASSERT_EQ(scores.size(), documents[document].size());
            for (size_t i = 0; i < scores.size(); ++i) {
              const Likelihood alone = scoreOf(documents[document][i]);
              EXPECT_EQ(scores[i].sum, alone.sum)
                  << fixed << " " << sequences << " " << document << " " << i;
              EXPECT_EQ(scores[i].isGreedy, alone.isGreedy);
            }
          });
      EXPECT_EQ(ended, documents.size());
      EXPECT_EQ(engine.state().freePages(), engine.state().pages());
    }
}

TEST(Scorer, SaysWhyARequestFails) {
  const Manifest manifest = hashManifest(400, 8);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, std::vector{hashForward}, pool,
                {.sequences = 2});
  bool isFirst = true;
  EXPECT_THROW(scoreDocuments(
                   engine,
                   [&]() -> std::optional<Requests> {
                     if (!std::exchange(isFirst, false))
                       return std::nullopt;
                     return Requests{{{1, kNotFiniteId}, {2}}};
                   },
                   [](size_t, const std::vector<Likelihood> &) {}),
               Error);
}
