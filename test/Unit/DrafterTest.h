//===- DrafterTest.h - Answers with scripted drafts -------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_DRAFTERTEST_H
#define QWEN_TEST_UNIT_DRAFTERTEST_H

#include "HashModel.h"
#include "engine/Batcher.h"
#include "engine/drafters/Drafter.h"

#include <gtest/gtest.h>

#include <map>

namespace qwen::test {

/// What a drafter does, and what it has been told.
struct Script {
  std::function<void(const Track &, int64_t, std::vector<int32_t> &)> draft;
  std::function<void(Step &)> follow = [](Step &) {};
  std::function<void(const Track &)> begin = [](const Track &) {};
  int64_t begun = 0, ended = 0, drafted = 0, accepted = 0, most = 0;
};

class ScriptedDrafter final : public Drafter {
public:
  explicit ScriptedDrafter(Script &script) : script(script) {}

  void begin(const Track &track) override {
    script.begin(track);
    ++script.begun;
  }
  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    EXPECT_GE(most, 1);
    EXPECT_TRUE(tokens.empty());
    script.most = std::max(script.most, most);
    script.draft(track, most, tokens);
  }
  void follow(Step &step) override { script.follow(step); }
  void accept(const Track &, int64_t drafted, int64_t accepted) override {
    EXPECT_GE(drafted, 1);
    EXPECT_GE(accepted, 0);
    EXPECT_LE(accepted, drafted);
    script.drafted += drafted;
    script.accepted += accepted;
  }
  void end(const Track &) override { ++script.ended; }

private:
  Script &script;
};

/// Allows a token by the number of tokens before it, and no other as often.
class Thirds final : public TokenConstraint {
public:
  std::span<const uint32_t> allowed() override {
    words.assign(2, 0);
    for (int32_t id = 0; id < 37; ++id)
      if (may(id))
        words[static_cast<size_t>(id) / 32] |= 1U << id % 32;
    return words;
  }
  void accept(int32_t id) override {
    if (!may(id))
      throw Error("token " + std::to_string(id) + " may not come");
    ids.push_back(id);
  }
  bool isDone() const override { return ids.size() == 90; }

private:
  bool may(int32_t id) const {
    // Runs of tokens that have no other.
    if (ids.size() % 7 > 4)
      return id == static_cast<int32_t>(9 + ids.size() % 27);
    return (static_cast<size_t>(id) + ids.size()) % 3 != 0 &&
           (ids.empty() || id != ids.back());
  }

  std::vector<int32_t> ids;
  std::vector<uint32_t> words;
};

/// An answer as its reader gets it.
struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::optional<EndReason> end;
  std::string error;

  bool operator==(const Answer &) const = default;
};

class DrafterTest : public testing::Test {
protected:
  void open(const EngineOptions &options, BatcherOptions rules = {},
            int threads = 1) {
    batcher.reset();
    engine.reset();
    pool.emplace(threads);
    answers.clear();
    // Steps are counted: none may depend on the clock.
    rules.paced = false;
    if (script.draft)
      rules.drafts = INT32_MAX;
    engine.emplace(manifest, nullptr, entries, *pool, options);
    if (draftEntry)
      engine->setDraftEngine(std::make_shared<Engine>(
          draftManifest, nullptr, std::vector<ForwardFn *>{draftEntry}, *pool,
          EngineOptions{.sequences = options.sequences,
                        .kvPages = draftPages}));
    if (script.draft)
      rules.drafter = [this](Engine &) {
        return std::make_unique<ScriptedDrafter>(script);
      };
    batcher.emplace(*engine, rules);
  }

  static Request requestOf(int64_t prompt, int64_t most, int32_t first = 0) {
    Request request;
    request.prompt.ids = squareTokens(prompt, first);
    request.maxTokens = most;
    return request;
  }

  RequestId add(Request request) {
    const RequestId id = std::ssize(answers) + 1;
    Answer &answer = answers[id];
    request.onToken = [&](const TokenEvent &event) {
      answer.ids.push_back(event.id);
      answer.logprobs.push_back(event.logprob);
      onToken();
      return true;
    };
    request.onEnd = [&](const Ending &ending) {
      answer.end = ending.reason;
      answer.error = ending.error;
    };
    batcher->add(std::make_unique<Job>(std::move(request), id, manifest.model));
    return id;
  }

  void finish() {
    while (!batcher->isIdle())
      batcher->step();
    EXPECT_EQ(engine->state().freePages(), engine->state().pages());
    EXPECT_EQ(script.begun, script.ended);
  }

  /// Runs a step and returns the number of its calls of `forward`.
  int64_t callsOfStep() {
    Tracer tracer(pool->size());
    engine->trace(&tracer);
    batcher->step();
    engine->trace(nullptr);
    return std::ssize(tracer.taken());
  }

  /// Makes the script draft from `known` answers. Each second draft has a wrong
  /// token if `errs`.
  void draftFrom(const std::map<RequestId, Answer> &known, bool errs) {
    script = {};
    script.draft = [&known, errs,
                    step = size_t{0}](const Track &track, int64_t most,
                                      std::vector<int32_t> &next) mutable {
      const std::vector<int32_t> &ids = known.at(track.job().id()).ids;
      const size_t drawn =
          track.settled().size() - track.job().request().prompt.ids.size();
      next.assign(ids.begin() +
                      static_cast<int64_t>(std::min(drawn, ids.size())),
                  ids.end());
      next.resize(std::min(++step % 7 + 1, static_cast<size_t>(most)), 5);
      if (errs)
        next[step % 5 % next.size()] ^= static_cast<int32_t>(step % 2);
    };
  }

  Manifest manifest = hashManifest(400, 64);
  std::vector<ForwardFn *> entries = {hashForward};
  Script script;
  /// A draft model of Speculate::Auto, unless the entry is null, and its pages.
  Manifest draftManifest = manifest;
  ForwardFn *draftEntry = nullptr;
  int64_t draftPages = 0;
  std::optional<ThreadPool> pool;
  std::optional<Engine> engine;
  std::optional<Batcher> batcher;
  std::map<RequestId, Answer> answers;
  std::function<void()> onToken = [] {};
};

/// Ways to draw a token that depend on the tokens before it.
inline std::vector<Request> waysToDraw() {
  std::vector<SamplerOptions> ways(9);
  ways[0].temperature = 0;
  ways[1].temperature = 1.5F;
  ways[2].repetitionPenalty = 1.3F;
  ways[3].frequencyPenalty = 0.7F;
  ways[3].presencePenalty = 0.4F;
  ways[3].topK = 9;
  ways[4].mirostat = 1;
  ways[5].mirostat = 2;
  ways[5].mirostatTau = 2;
  ways[6].dryMultiplier = 0.5;
  ways[6].dryAllowedLength = 1;
  ways[6].noRepeatNgram = 3;
  ways[7].minTokens = 60;
  ways[7].decayStart = 5;
  ways[7].decayFactor = 1.02;
  ways[7].badWords = {{3, 4}, {5}};
  ways[8].temperatureRange = 0.3F;
  ways[8].topP = 0.9F;
  ways[8].xtcProbability = 0.5;
  ways[8].xtcThreshold = 0.05F;
  std::vector<Request> requests;
  for (const SamplerOptions &way : ways)
    for (const bool isFree : {true, false}) {
      Request &request = requests.emplace_back();
      request.sampling = way;
      request.sampling.seed = requests.size();
      request.logprobs = isFree ? 2 : 0;
      if (way.topK)
        request.stopTokens = {36};
      if (!isFree)
        request.constraint = std::make_shared<Thirds>();
    }
  return requests;
}

/// 200 requests, many behind the same prompts.
inline std::vector<Request> manyRequests() {
  std::vector<Request> requests, ways;
  for (int32_t i = 0; i < 200; ++i) {
    // A constraint follows one answer.
    if (ways.empty())
      ways = waysToDraw();
    Request &request = requests.emplace_back(std::move(ways.back()));
    ways.pop_back();
    // The cache has the first page of most of them.
    request.prompt.ids = squareTokens(60 + i % 23, i % 5);
    request.maxTokens = 20 + i % 17;
    request.sampling.seed = static_cast<uint64_t>(i);
    // Without logprobs, tokens are forced.
    if (i % 3 == 0)
      request.logprobs.reset();
  }
  return requests;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_DRAFTERTEST_H
