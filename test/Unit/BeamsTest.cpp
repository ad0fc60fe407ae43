//===- BeamsTest.cpp - Beam searches in a batcher -------------------------===//

#include "engine/Beams.h"
#include "HashModel.h"
#include "TempDir.h"
#include "engine/Batcher.h"
#include "engine/Logprobs.h"
#include "engine/RootTable.h"

#include <gtest/gtest.h>

#include <map>

using namespace qwen;
using namespace qwen::test;

/// The answers to a request, without an engine.
static std::vector<BeamTokens> hashBeams(const Request &request) {
  BeamSearch search(request.beams, request.stopTokens, request.maxTokens);
  std::vector<float> row(40);
  const auto samplerOf = [&](const BeamTokens &beam) {
    Sampler sampler(request.sampling, 40, 37, 0, request.stopTokens);
    for (int32_t id : request.prompt.ids)
      sampler.acceptPrompt(id);
    for (int32_t id : beam.ids)
      sampler.acceptDrawn(id);
    return sampler;
  };
  while (!search.isDone()) {
    std::vector<std::vector<BeamCandidate>> offers;
    for (const BeamTokens &beam : search.beams()) {
      uint64_t hash = 0;
      for (int32_t id : request.prompt.ids)
        hash = hashAfter(hash, id);
      for (int32_t id : beam.ids)
        hash = hashAfter(hash, id);
      for (int32_t i = 0; i < 40; ++i)
        row[static_cast<size_t>(i)] = hashLogit(hash, i);
      std::vector<CandidateKey> keys;
      samplerOf(beam).best(row, 37, keys);
      const double sum = logSumWeights(row, std::ranges::max(row));
      std::vector<BeamCandidate> &offer = offers.emplace_back();
      for (CandidateKey key : keys)
        offer.push_back(
            {key.id(),
             static_cast<float>(row[static_cast<size_t>(key.id())] - sum),
             key.logit()});
    }
    search.advance(offers, [&](size_t beam, int32_t id, float logprob) {
      return samplerOf(search.beams()[beam]).penalized(id, logprob);
    });
  }
  return search.answers(static_cast<size_t>(request.answers));
}

namespace {
struct ToldBeams {
  Request request;
  std::vector<BeamTokens> answers;
  std::vector<int32_t> drawn;
  std::vector<int64_t> progress;
  int starts = 0;
  std::optional<Ending> ending;
};

class BeamsTest : public testing::TestWithParam<bool> {
protected:
  void open(const EngineOptions &options, const BatcherOptions &rules = {}) {
    batcher.reset();
    told.clear();
    manifest = hashManifest(400, 8, GetParam());
    engine.emplace(manifest, nullptr,
                   std::vector{GetParam() ? fixedHashForward : hashForward},
                   pool, options);
    batcher.emplace(*engine, rules);
  }

  static Request search(int64_t prompt, const BeamOptions &beams,
                        int64_t most = 20, int32_t first = 0) {
    Request request;
    request.prompt.ids = squareTokens(prompt, first);
    request.beams = beams;
    request.answers = beams.beams;
    request.maxTokens = most;
    request.stopTokens = {5};
    return request;
  }

  RequestId add(Request request) {
    const RequestId id = ++last;
    ToldBeams &entry = told[id];
    request.onStart = [&] { ++entry.starts; };
    request.onAnswers = [&](std::span<const BeamTokens> answers) {
      EXPECT_FALSE(entry.ending);
      entry.answers.assign(answers.begin(), answers.end());
    };
    request.onToken = [&](const TokenEvent &event) {
      entry.drawn.push_back(event.id);
      return true;
    };
    request.onProgress = [&](const Progress &progress) {
      entry.progress.push_back(progress.done);
    };
    request.onEnd = [&](const Ending &ending) { entry.ending = ending; };
    entry.request = request;
    batcher->add(std::make_unique<Job>(std::move(request), id, manifest.model));
    return id;
  }

  void finish() {
    while (!batcher->isIdle())
      batcher->step();
    expectFree();
  }

  void expectFree() {
    EXPECT_EQ(engine->state().freePages(), engine->state().pages());
    EXPECT_EQ(engine->state().freeSequences(), engine->state().maxSequences());
  }

  void expectAnswers(RequestId id) {
    const ToldBeams &entry = told[id];
    ASSERT_TRUE(entry.ending);
    EXPECT_EQ(entry.ending->error, "");
    if (!entry.request.beams.isSearch()) {
      EXPECT_EQ(entry.drawn, hashAnswer(entry.request)) << "request " << id;
      return;
    }
    const std::vector<BeamTokens> expected = hashBeams(entry.request);
    ASSERT_EQ(entry.answers.size(), expected.size());
    int64_t drawn = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(entry.answers[i].ids, expected[i].ids) << id << " " << i;
      EXPECT_EQ(entry.answers[i].score, expected[i].score);
      EXPECT_EQ(entry.answers[i].logprobs, expected[i].logprobs);
      drawn += std::ssize(expected[i].ids);
    }
    EXPECT_EQ(entry.ending->drawnTokens, drawn);
    EXPECT_EQ(entry.ending->reason, expected[0].ids.back() == 5
                                        ? EndReason::Stop
                                        : EndReason::Length);
    EXPECT_EQ(entry.starts, 1);
    EXPECT_TRUE(entry.drawn.empty());
    EXPECT_EQ(entry.progress.back(), entry.ending->promptTokens);
  }

  void expectAll() {
    for (const auto &[id, entry] : told)
      expectAnswers(id);
  }

  Manifest manifest;
  ThreadPool pool{1};
  std::optional<Engine> engine;
  std::optional<Batcher> batcher;
  std::map<RequestId, ToldBeams> told;
  RequestId last = 0;
};
} // namespace

INSTANTIATE_TEST_SUITE_P(FixedState, BeamsTest, testing::Bool());

static const BeamOptions kFour = {.beams = 4};
static const BeamOptions kGroups = {
    .beams = 6, .groups = 3, .diversityPenalty = 0.3};

TEST_P(BeamsTest, FindsTheAnswersOfTheSearch) {
  for (const bool cache : {true, false})
    for (int64_t promptTokens : {0, 3}) {
      open({.sequences = 8},
           {.promptTokens = promptTokens, .prefixCache = cache});
      // The branches copy no page, one, and cross borders of pages.
      for (int64_t prompt : {1, 50, 63, 64, 65, 128})
        for (const BeamOptions &beams : {kFour, kGroups})
          add(search(prompt, beams, 70));
      BeamOptions never = kFour;
      never.earlyStopping = EarlyStopping::Never;
      add(search(9, never, 100));
      add(search(398, kFour, 5));
      told.rbegin()->second.request.maxTokens = 3;
      add(search(20, kFour, 1));
      finish();
      expectAll();
    }
}

TEST_P(BeamsTest, ActsOnLogprobsByBiasAndPenalties) {
  open({.sequences = 6});
  for (const BeamOptions &beams : {kFour, kGroups}) {
    Request request = search(30, beams, 30);
    request.sampling.repetitionPenalty = 1.3f;
    add(request);
    request.sampling = {.frequencyPenalty = 0.2f, .presencePenalty = 0.3f};
    add(request);
    request.sampling = {.noRepeatNgram = 2};
    add(request);
    request.sampling = {.minTokens = 12, .logitBias = {{5, 3}, {7, -2}}};
    add(request);
    request.sampling = {.decayStart = 4, .decayFactor = 1.1};
    add(request);
  }
  finish();
  expectAll();
}

TEST_P(BeamsTest, RunsBesideOthers) {
  open({.sequences = 9});
  for (int32_t i = 0; i < 4; ++i) {
    add(search(40 + 10 * i, i % 2 ? kGroups : kFour, 40, i));
    add(search(90, {}, 30, i));
  }
  finish();
  expectAll();
}

TEST_P(BeamsTest, IsPreemptedAsAWhole) {
  for (const bool cache : {true, false}) {
    open({.sequences = 16, .kvPages = 13}, {.prefixCache = cache});
    for (int32_t i = 0; i < 5; ++i) {
      add(search(30 + i, i % 2 ? kGroups : kFour, 80, i));
      add(search(50, {}, 80, i));
    }
    finish();
    expectAll();
    EXPECT_GT(batcher->counts().preemptions, 0);
  }
}

// Requests of a higher priority preempt it in its prompt, while its sequences
// branch, and later.
TEST_P(BeamsTest, GoesOnAfterEachPreemption) {
  for (int first : {1, 2, 7, 8, 9}) {
    open({.sequences = 6, .kvPages = 24}, {.promptTokens = 8});
    RootTable roots;
    Request request = search(60, kGroups, 70);
    request.stopTokens = {};
    const RequestId id = add(request);
    for (int i = 1; !told[id].ending && i < 1000; ++i) {
      batcher->step();
      if (i % 61 != first)
        continue;
      Request other = search(5, kFour, 2, i % 37);
      other.priority = 1;
      other.prompt.root = roots.intern({.salt = "1"});
      const RequestId urgent = add(other);
      while (!told[urgent].ending)
        batcher->step();
    }
    finish();
    EXPECT_EQ(hashBeams(request)[0].ids, told[id].answers[0].ids);
    EXPECT_GT(batcher->counts().preemptions, 1);
  }
}

TEST_P(BeamsTest, EndsAtOnceWhenItIsCancelled) {
  for (int steps : {0, 1, 3, 9, 15, 30}) {
    open({.sequences = 6});
    const RequestId id = add(search(60, kGroups, 300));
    told[id].request.beams.earlyStopping = EarlyStopping::Never;
    for (int i = 0; i < steps; ++i)
      batcher->step();
    EXPECT_EQ(batcher->runningCount(), steps ? 6u : 0u);
    batcher->cancel(id);
    EXPECT_TRUE(batcher->isIdle());
    EXPECT_EQ(told[id].ending->reason, EndReason::Cancelled);
    EXPECT_TRUE(told[id].answers.empty());
    expectFree();
  }
}

TEST_P(BeamsTest, FailsAsAWhole) {
  open({.sequences = 4, .kvPages = 5});
  const RequestId prompt = add(search(300, kFour, 20));
  finish();
  EXPECT_EQ(told[prompt].ending->kind, ErrorKind::NoPage);
  BeamOptions never = kFour;
  never.earlyStopping = EarlyStopping::Never;
  const RequestId grown = add(search(60, never, 300));
  finish();
  EXPECT_EQ(told[grown].ending->kind, ErrorKind::NoPage);
  EXPECT_NE(told[grown].ending->error.find("in each of 4 beams"),
            std::string::npos);
  const RequestId many = add(search(5, kGroups, 20));
  finish();
  EXPECT_EQ(told[many].ending->error,
            "num-beams is 6 when there are 4 sequences");
  Request bad = search(5, kFour, 20);
  bad.prompt.ids.push_back(kNotFiniteId);
  const RequestId failed = add(bad);
  finish();
  EXPECT_EQ(told[failed].ending->kind, ErrorKind::NotFinite);
  // Nothing that can be drawn.
  Request banned = search(4, kFour, 60);
  banned.sampling.noRepeatNgram = 1;
  banned.stopTokens = {};
  const RequestId none = add(banned);
  finish();
  EXPECT_EQ(told[none].ending->error,
            "the beam search found 0 of 4 answers: no token is left");
  // The prompt only.
  const RequestId nothing = add(search(20, kFour, 0));
  finish();
  EXPECT_EQ(told[nothing].ending->reason, EndReason::Length);
  EXPECT_EQ(told[nothing].answers.size(), 4u);
}

TEST_P(BeamsTest, RefusesWhatASearchCannotDo) {
  open({.sequences = 4});
  const auto error = [&](auto change) {
    Request request = search(5, kFour);
    change(request);
    return messageOf([&] { add(request); });
  };
  EXPECT_EQ(error([](Request &r) { r.answers = 5; }),
            "the number of answers is 5 when 1 to num-beams (4) is needed");
  EXPECT_EQ(error([](Request &r) { r.logprobs = 2; }),
            "the logprobs of the most likely tokens are 2 when 0 with "
            "num-beams is needed");
  EXPECT_NE(error([](Request &r) { r.isContinued = true; }), "");
  EXPECT_NE(error([](Request &r) { r.onDraw = [](auto...) { return 1; }; }),
            "");
  EXPECT_NE(error([](Request &r) { r.rows.emplace(RowKind::Hidden, nullptr); }),
            "");
}

TEST_P(BeamsTest, ScoresThePrompt) {
  open({.sequences = 4});
  Request request = search(20, kFour);
  request.logprobs = 0;
  request.scorePrompt = true;
  const RequestId id = add(request);
  finish();
  const std::vector<int32_t> prompt = squareTokens(20);
  EXPECT_EQ(told[id].drawn,
            std::vector<int32_t>(prompt.begin() + 1, prompt.end()));
  told[id].drawn.clear();
  expectAnswers(id);
}
