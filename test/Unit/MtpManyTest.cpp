//===- MtpManyTest.cpp - Many answers with drafts of a head ---------------===//

#include "HeadAnswers.h"

#include "artifact/Artifact.h"
#include "engine/drafters/Drafters.h"
#include "engine/drafters/ForwardingDrafter.h"
#include "qwen/ABI/Blocks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

using namespace qwen;
using namespace qwen::test;

namespace {
/// What comes in place of the drafts of the head.
enum class Kind { Own, Right, Wrong, Random };

class Replaced final : public ForwardingDrafter {
public:
  Replaced(std::unique_ptr<Drafter> head, Kind kind,
           const std::vector<Answer> &known)
      : ForwardingDrafter(std::move(head)), kind(kind), known(known) {}

  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    ForwardingDrafter::draft(track, most, tokens);
    const std::vector<int32_t> &ids = known[track.job().id() - 1].ids;
    auto next = static_cast<size_t>(track.settledSize()) -
                track.job().request().prompt.ids.size();
    for (int32_t &token : tokens) {
      const int32_t right = next < ids.size() ? ids[next] : 0;
      ++next;
      if (kind == Kind::Random)
        token = static_cast<int32_t>(random() % 320);
      else if (kind != Kind::Own)
        token = kind == Kind::Right ? right : right ^ 1;
    }
  }

private:
  const Kind kind;
  const std::vector<Answer> &known;
  std::mt19937 random;
};

class MtpMany : public HeadAnswers {
protected:
  /// Requests of which many begin with the same tokens.
  static std::vector<Request> manyRequests() {
    std::vector<Request> requests(200);
    for (int i = 0; i < 200; ++i) {
      Request &request = requests[static_cast<size_t>(i)];
      for (int token = 0; token < (i % 2 ? 50 + i % 13 : 70 + i % 53); ++token)
        request.prompt.ids.push_back((i % 5 + 37 * token * token) % 300);
      request.maxTokens = 8 + i % 17;
      request.sampling.temperature = static_cast<float>(i % 4) * 0.4F;
      request.sampling.repetitionPenalty = i % 3 ? 1.0F : 1.2F;
      request.sampling.frequencyPenalty = i % 7 ? 0.0F : 0.5F;
      request.sampling.topK = i % 11 ? 0 : 9;
      request.sampling.seed = static_cast<uint64_t>(i);
      if (i % 13 == 0)
        request.stopTokens = {1, 7, 36, 64, 99, 150, 201, 256, 300};
      if (i % 6)
        request.logprobs = i % 2;
    }
    return requests;
  }
  std::vector<Answer> run(Kind kind, int64_t drafts, EngineOptions options) {
    options.sequences = 6;
    options.kvPages = 5;
    BatcherOptions rules = {.snapshotEvery = kPageTokens, .drafts = drafts};
    if (options.speculate != Speculate::Off)
      rules.drafter = [&](Engine &engine) {
        return std::make_unique<Replaced>(
            makeDrafter(engine.speculate(), engine), kind, known);
      };
    Engine engine(artifact, pool, options);
    return answerAll(engine, manyRequests(), rules);
  }

  static std::string path() {
    const char *file = std::getenv("QWEN_HEAD");
    return file ? file : "head.qwen";
  }

  const Artifact artifact{path()};
  ThreadPool pool{2};
  std::vector<Answer> known;
};
} // namespace

// Text, logprobs and the reasons why answers end, in batches, behind a prefix
// cache, and where pages lack.
TEST_F(MtpMany, AnswersAreTheSame) {
  known = run(Kind::Own, 0, {});
  EXPECT_GT(counts.preemptions, 0);
  EXPECT_GT(counts.cachedTokens, 0);
  int64_t drafts = 0;
  for (const Speculate which : {Speculate::Mtp, Speculate::Auto})
    for (const Kind kind :
         {Kind::Own, Kind::Right, Kind::Wrong, Kind::Random}) {
      EXPECT_EQ(run(kind, drafts, {.speculate = which}), known)
          << static_cast<int>(kind) << ", " << drafts;
      EXPECT_GT(counts.draftTokens, 0);
      EXPECT_GT(counts.preemptions, 0);
      EXPECT_GT(counts.cachedTokens, 0);
      if (kind == Kind::Right && drafts)
        EXPECT_EQ(counts.acceptedTokens, counts.draftTokens);
      if (kind == Kind::Wrong)
        EXPECT_EQ(counts.acceptedTokens, 0);
      // 0 is as many as save time.
      drafts = (drafts + 1) % 4;
    }
}
