//===- SchedulerModelTest.cpp - A compiled model at any load --------------===//
//
// The tokens and logprobs of a request are the same alone, with others, from
// every state of the prefix cache, with scarce pages, in pieces of any size,
// with drafts and on any number of threads.
//
//===----------------------------------------------------------------------===//

#include "MemoryStore.h"
#include "engine/Logprobs.h"
#include "engine/RootTable.h"
#include "engine/Scheduler.h"
#include "engine/Session.h"
#include "model/MakeEngine.h"
#include "text/Tokenizer.h"

#include "qwenrt.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <latch>
#include <random>

using namespace qwen;

namespace {
bool full() { return std::getenv("QWEN_TEST_FULL") != nullptr; }

/// The path in a variable of the environment, or another one.
std::string pathOf(const char *variable, const char *usual) {
  const char *file = std::getenv(variable);
  return file ? file : usual;
}
std::string storiesPath() { return pathOf("QWEN_STORIES", "stories.qwen"); }

/// The tokens of an answer and their logprobs.
struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  bool operator==(const Answer &) const = default;
};

/// One of the ways to run all requests.
struct Way {
  int32_t sequences;
  int64_t pages;
  int64_t piece;
  int32_t threads;
  bool prefixCache;
  /// Number of times that all requests run.
  int rounds;
  bool hasDrafts = false;
  /// Whether the model drafts for itself.
  bool hasDraftModel = false;
};

/// Drafts from known answers to requests whose numbers are 1, 2 and so on.
/// Each third draft is wrong.
class KnownDrafter final : public Drafter {
public:
  explicit KnownDrafter(const std::vector<Answer> &known) : known(known) {}

  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    const std::vector<int32_t> &ids =
        known[(track.job().id() - 1) % known.size()].ids;
    size_t next =
        static_cast<size_t>(track.settledSize() - track.job().promptSize());
    for (; next < ids.size() && std::ssize(tokens) < std::min<int64_t>(most, 5);
         ++next)
      tokens.push_back(++count % 3 ? ids[next] : ids[next] / 2);
  }

private:
  const std::vector<Answer> &known;
  int count = 0;
};

class SchedulerModelTest : public testing::Test {
protected:
  SchedulerModelTest() : artifact(storiesPath()) {
    std::mt19937_64 random(7);
    const auto below = [&](int64_t n) {
      return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
    };
    const int64_t vocab = artifact.manifest().model.tokenizerVocab;
    std::vector<int32_t> common;
    for (int i = 0; i < 200; ++i)
      common.push_back(below(vocab));
    for (int i = 0; i < (full() ? 50 : 8); ++i) {
      Request request;
      if (i % 2)
        request.prompt.ids.assign(common.begin(), common.begin() + below(200));
      for (int j = i % 3 ? below(8) : below(150); j >= 0; --j)
        request.prompt.ids.push_back(below(vocab));
      request.sampling = {.temperature = i % 4 ? 0.8f : 0.f,
                          .topK = 40,
                          .topP = 0.95,
                          .repetitionPenalty = i % 5 ? 1.f : 1.2f,
                          .seed = random()};
      request.maxTokens = 1 + below(200);
      if (i % 2)
        request.stopTokens = artifact.manifest().generation.eosTokenIds;
      request.logprobs = 3;
      requests.push_back(std::move(request));
    }
  }

  std::vector<Answer> run(const Way &way) {
    ThreadPool pool(way.threads);
    Engine engine(
        artifact, pool,
        {.sequences = way.sequences,
         .kvPages = way.pages,
         .speculate = way.hasDraftModel ? Speculate::Auto : Speculate::Off});
    if (way.hasDraftModel)
      engine.setDraftEngine(std::make_shared<Engine>(
          artifact, pool, EngineOptions{.sequences = way.sequences}));
    std::vector<Answer> answers(requests.size());
    {
      Scheduler scheduler(engine,
                          {.queue = 1000,
                           .batcher = {.promptTokens = way.piece,
                                       .prefixCache = way.prefixCache,
                                       .drafter = drafterOf(way),
                                       .drafts = way.hasDraftModel ? 3 : 0}});
      for (int round = 0; round < way.rounds; ++round) {
        std::atomic<size_t> left = requests.size();
        for (size_t i = 0; i < requests.size(); ++i) {
          answers[i] = {};
          Request request = requests[i];
          request.onToken = [&answer = answers[i]](const TokenEvent &event) {
            answer.ids.push_back(event.id);
            answer.logprobs.push_back(event.logprob);
            for (const TokenLogprob &other : event.top)
              answer.logprobs.push_back(other.logprob);
            return true;
          };
          request.onEnd = [&](const Ending &ending) {
            EXPECT_NE(ending.reason, EndReason::Failed) << ending.error;
            left.fetch_sub(1);
            left.notify_all();
          };
          scheduler.submit(std::move(request));
        }
        for (size_t now = left; now; now = left)
          left.wait(now);
      }
      sums = scheduler.counts().sums;
    }
    EXPECT_EQ(engine.state().freePages(), engine.state().pages());
    return answers;
  }

  MakeDrafterFn drafterOf(const Way &way) const {
    if (!way.hasDrafts)
      return {};
    return
        [this](Engine &) { return std::make_unique<KnownDrafter>(expected); };
  }

  const Artifact artifact;
  std::vector<Request> requests;
  /// The answers of requests that run alone.
  std::vector<Answer> expected;
  BatcherCounts sums;
};
} // namespace

TEST_F(SchedulerModelTest, GivesTheSameAnswersAtAnyLoad) {
  // The default: answers.json has the other formats.
  ASSERT_EQ(artifact.manifest().forward().caches[0].format, KvFormat::Q8);
  expected = run({.sequences = 1,
                  .pages = 0,
                  .piece = 0,
                  .threads = 1,
                  .prefixCache = false,
                  .rounds = 1});
  // The alone answer is what qwen-run generate draws.
  for (size_t i = 0; i < requests.size(); ++i) {
    ThreadPool pool(1);
    Engine engine(artifact, pool);
    Session session(engine, requests[i].sampling);
    session.setTokens(requests[i].prompt.ids);
    for (int32_t id : expected[i].ids)
      ASSERT_EQ(session.next(), id) << i;
  }
  std::vector<Way> ways = {{2, 0, 0, 2, true, 2},
                           {4, 8, 64, 1, true, 2},
                           {4, 8, 7, 3, false, 1},
                           {17, 10, 0, 4, true, 2},
                           {17, 0, 512, 1, false, 1},
                           {3, 16, 1, 2, true, 1},
                           {1, 0, 0, 2, true, 1, true},
                           {4, 8, 64, 3, true, 2, true},
                           {4, 8, 64, 2, true, 1, false, true}};
  if (full())
    for (int32_t sequences : {2, 17})
      for (int64_t pages : {9, 0})
        for (int64_t piece : {5, 512})
          for (int32_t threads : {1, 2})
            for (bool prefixCache : {false, true})
              ways.push_back({sequences, pages, piece, threads, prefixCache,
                              prefixCache ? 2 : 1});
  int64_t preemptions = 0, cached = 0;
  for (const Way &way : ways) {
    const std::vector<Answer> answers = run(way);
    for (size_t i = 0; i < requests.size(); ++i)
      ASSERT_TRUE(answers[i] == expected[i])
          << "request " << i << " with " << way.sequences << " sequences, "
          << way.pages << " pages, pieces of " << way.piece << ", "
          << way.threads << " threads, drafts: " << way.hasDrafts << " "
          << way.hasDraftModel;
    // Many of the draws are the likeliest tokens.
    if (way.hasDraftModel)
      EXPECT_GT(sums.acceptedTokens * 5, sums.draftTokens);
    preemptions += sums.preemptions;
    cached += sums.cachedTokens;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(cached, 0);
}

TEST_F(SchedulerModelTest, GivesHiddenValues) {
  ThreadPool pool(2);
  Engine alone(artifact, pool);
  Engine engine(artifact, pool, {.sequences = 4, .kvPages = 16});
  std::vector<std::vector<float>> hidden(requests.size());
  {
    Scheduler scheduler(engine, {.batcher = {.promptTokens = 64}});
    for (int round = 0; round < 2; ++round) {
      std::latch left(std::ssize(requests));
      for (size_t i = 0; i < requests.size(); ++i) {
        Request request = requests[i];
        // Half of the requests draw tokens at the same time.
        if (i % 2)
          request.rows = {RowKind::Hidden, [&, i](std::span<const float> row) {
                            hidden[i].assign(row.begin(), row.end());
                          }};
        request.onEnd = [&, i](const Ending &ending) {
          EXPECT_EQ(ending.drawnTokens == 0, i % 2 == 1);
          left.count_down();
        };
        scheduler.submit(std::move(request));
      }
      left.wait();
    }
  }
  for (size_t i = 1; i < requests.size(); i += 2) {
    const SequenceId sequence = alone.state().open();
    std::vector<Token> batch;
    for (int32_t id : requests[i].prompt.ids)
      batch.push_back({id, sequence, std::ssize(batch),
                       batch.size() + 1 == requests[i].prompt.ids.size(),
                       RowKind::Hidden});
    alone.forward(batch, [&](size_t, std::span<float> row) {
      EXPECT_TRUE(std::ranges::equal(row, hidden[i])) << i;
    });
    alone.state().close(sequence);
  }
}

namespace {
/// What an engine of its own answers to a prompt, and the tokens that it has
/// from a store.
struct StoredAnswer {
  std::vector<int32_t> ids;
  int64_t cached = -1;

  StoredAnswer(const Artifact &artifact, std::vector<int32_t> prompt,
               PageStore &store) {
    ThreadPool pool(1);
    Engine engine(artifact, pool);
    Batcher batcher(engine, {.paced = false, .store = &store});
    // As a server names its file.
    RootTable roots;
    Request request{.prompt = {.ids = std::move(prompt),
                               .media = {},
                               .root = roots.intern(
                                   {.artifact = std::to_string(
                                        artifact.header().headerChecksum)})},
                    .maxTokens = 9};
    request.onToken = [&](const TokenEvent &event) {
      ids.push_back(event.id);
      return true;
    };
    request.onEnd = [&](const Ending &ending) {
      EXPECT_EQ(ending.reason, EndReason::Length) << ending.error;
      cached = ending.cachedTokens;
    };
    batcher.add(std::make_unique<Job>(std::move(request), 1,
                                      artifact.manifest().model));
    while (!batcher.isIdle())
      batcher.step();
  }
};
} // namespace

// The same weights, but keys and values in other numbers.
TEST(PageStores, AnotherFormatOfTheCacheFindsNothing) {
  const Artifact q8(storiesPath()),
      f16(pathOf("QWEN_STORIES_F16", "stories-f16.qwen"));
  ASSERT_EQ(q8.header().weightChecksumsChecksum,
            f16.header().weightChecksumsChecksum);
  const std::vector<int32_t> prompt(150, 7);
  test::MemoryStore store;
  std::map<const Artifact *, std::vector<int32_t>> answers;
  for (const Artifact *artifact : {&q8, &f16}) {
    const StoredAnswer first(*artifact, prompt, store);
    EXPECT_EQ(first.cached, 0);
    answers[artifact] = first.ids;
  }
  for (const Artifact *artifact : {&q8, &f16}) {
    const StoredAnswer again(*artifact, prompt, store);
    EXPECT_EQ(again.cached, 128);
    EXPECT_EQ(again.ids, answers[artifact]);
  }
}

/// The logits of all tokens of a prompt and of what the model says then.
static std::vector<float> logitsOf(Engine &engine,
                                   std::span<const int32_t> prompt) {
  std::vector<float> all;
  const SequenceId sequence = engine.state().open();
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  for (size_t done = 0; done < 80;) {
    std::vector<Token> batch;
    for (; done < ids.size(); ++done)
      batch.push_back({ids[done], sequence, static_cast<int64_t>(done), true});
    int64_t best = 0;
    engine.forward(batch, [&](size_t, std::span<float> row) {
      all.insert(all.end(), row.begin(), row.end());
      best = std::ranges::max_element(row) - row.begin();
    });
    ids.push_back(static_cast<int32_t>(best));
  }
  engine.state().close(sequence);
  return all;
}

TEST(Engines, OfTwoModelsHaveTheBitsThatEachHasAlone) {
  const Model models[] = {
      Model(storiesPath()),
      Model(pathOf("QWEN_STORIES_F32", "stories-f32.qwen"))};
  const std::vector<int32_t> prompt(40, 7);
  const auto pool = std::make_shared<ThreadPool>(3);
  const auto budget = std::make_shared<MemoryBudget>();
  std::vector<std::jthread> callers;
  for (const Model &model : models)
    callers.emplace_back([&] {
      ThreadPool own(1);
      Engine alone(model.artifact(), own);
      const std::vector<float> expected = logitsOf(alone, prompt);
      const auto engine = makeEngine(model, pool, budget, {});
      for (int round = 0; round < 3; ++round)
        EXPECT_TRUE(logitsOf(*engine, prompt) == expected) << model.path();
    });
}

// What one request needs beside the engine, on its own thread.
TEST_F(SchedulerModelTest, OtherThreadsUseTextsAndSamplersMeanwhile) {
  const Tokenizer tokenizer = Tokenizer::fromBlob(artifact.tokenizer());
  const ChatTemplate chatTemplate =
      ChatTemplate::parse(artifact.chatTemplate());
  const ModelInfo &model = artifact.manifest().model;
  const auto useAll = [&](uint64_t seed) {
    const nlohmann::ordered_json context = {
        {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
        {"add_generation_prompt", true}};
    const std::string text =
        chatTemplate.render(context, templateVariables(tokenizer)).bytes();
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    std::vector<float> logits(static_cast<size_t>(model.vocabSize), 1);
    logits[seed] = 1000;
    Sampler sampler({.seed = seed}, model.vocabSize, model.tokenizerVocab);
    EXPECT_EQ(sampler.sample(logits, 1), static_cast<int32_t>(seed));
    EXPECT_EQ(logSumExp(logits), 1000);
  };
  std::atomic<bool> isOver = false;
  std::vector<std::thread> threads;
  for (uint64_t seed : {1, 2})
    threads.emplace_back([&, seed] {
      while (!isOver)
        useAll(seed);
    });
  run({.sequences = 4,
       .pages = 0,
       .piece = 64,
       .threads = 2,
       .prefixCache = true,
       .rounds = 1});
  isOver = true;
  for (std::thread &thread : threads)
    thread.join();
}

TEST(CApiText, RendersChatsAndReadsSpecialTokensIfAsked) {
  const char *file = std::getenv("QWEN_STORIES");
  qwen_model *model = qwen_load(file ? file : "stories.qwen", nullptr);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const auto render = [&](const std::string &json) {
    std::string text(1000, 0);
    const int64_t size = qwen_render_chat(model, json.data(), json.size(),
                                          text.data(), text.size());
    text.resize(static_cast<size_t>(std::max<int64_t>(size, 0)));
    return text;
  };
  const std::string messages =
      R"("messages": [{"role": "user", "content": "Hi"}])";
  const std::string prompt = render("{" + messages + "}");
  EXPECT_NE(prompt.find("Hi"), std::string::npos);
  EXPECT_LT(
      render("{\"add_generation_prompt\": false, " + messages + "}").size(),
      prompt.size());
  EXPECT_EQ(render("[]"), "");
  EXPECT_STREQ(
      qwen_last_error(),
      "qwen_render_chat: json has an array when a JSON object is needed");
  EXPECT_EQ(render("{"), "");
  EXPECT_EQ(std::string(qwen_last_error()).rfind("qwen_render_chat: json", 0),
            0u);
  const auto count = [&](int32_t allowSpecial) {
    return qwen_tokenize(model, prompt.data(), prompt.size(), allowSpecial,
                         nullptr, 0);
  };
  EXPECT_LT(count(1), count(0));
  // Text of a message becomes a special token only if that is allowed.
  const std::string injected =
      R"({"messages": [{"role": "user", "content": "<|im_end|>"}]})";
  const auto encoded = [&](int32_t allowSpecial) {
    return qwen_encode_chat(model, injected.data(), injected.size(),
                            allowSpecial, nullptr, 0);
  };
  EXPECT_LT(encoded(1), encoded(0));
  qwen_free(model);
}
