//===- ConstraintTest.cpp - Answers of which not every token may come -----===//

#include "HashModel.h"
#include "engine/Batcher.h"

#include <gtest/gtest.h>

#include <map>

using namespace qwen;
using namespace qwen::test;

namespace {

/// Number of tokens of the hash model.
constexpr int32_t kTokens = 37;

/// Allows a token by its id and the tokens before it.
class Rule final : public TokenConstraint {
public:
  using Fn = std::function<bool(std::span<const int32_t> before, int32_t id)>;

  explicit Rule(Fn mayCome, size_t most = SIZE_MAX)
      : may(std::move(mayCome)), mostTokens(most) {}

  std::span<const uint32_t> allowed() override {
    words.assign(2, 0);
    for (int32_t id = 0; id < kTokens; ++id)
      if (may(ids, id))
        words[static_cast<size_t>(id) / 32] |= 1U << id % 32;
    return words;
  }
  void accept(int32_t id) override {
    if (!may(ids, id))
      throw Error("token " + std::to_string(id) + " may not come");
    ids.push_back(id);
  }
  bool isDone() const override { return ids.size() >= mostTokens; }

  std::vector<int32_t> ids;

private:
  const Fn may;
  const size_t mostTokens;
  std::vector<uint32_t> words;
};

/// All tokens may come; says so in one of two ways.
class Anything final : public TokenConstraint {
public:
  explicit Anything(bool inWords) : words(inWords ? 2 : 0, ~0U) {}
  std::span<const uint32_t> allowed() override { return words; }
  void accept(int32_t) override {}
  bool isDone() const override { return false; }

private:
  std::vector<uint32_t> words;
};

} // namespace

static bool isAnother(std::span<const int32_t> before, int32_t id) {
  return id % 3 != 0 && (before.empty() || id > before.back() - 9);
}

namespace {
class ConstraintTest : public testing::Test {
protected:
  struct Told {
    std::vector<int32_t> drawn;
    std::vector<float> logprobs;
    std::optional<Ending> ending;
  };

  void open(const EngineOptions &options,
            const BatcherOptions &steps = BatcherOptions(),
            int64_t callTokens = 8) {
    batcher.reset();
    manifest = hashManifest(400, callTokens);
    engine.emplace(manifest, nullptr, std::vector{hashForward}, pool, options);
    batcher.emplace(*engine, steps);
  }

  static Request requestOf(std::vector<int32_t> prompt, int64_t tokens,
                           double temperature = 1) {
    Request request;
    request.prompt.ids = std::move(prompt);
    request.sampling.temperature = static_cast<float>(temperature);
    request.sampling.presencePenalty = 0.5;
    request.maxTokens = tokens;
    request.logprobs = 0;
    return request;
  }

  /// The client leaves after `most` tokens.
  RequestId add(Request request, size_t most = SIZE_MAX) {
    const RequestId id = ++last;
    Told &entry = told[id];
    request.sampling.seed = id;
    request.onToken = [&entry, most](const TokenEvent &event) {
      entry.drawn.push_back(event.id);
      entry.logprobs.push_back(event.logprob);
      return entry.drawn.size() < most;
    };
    request.onEnd = [&entry](const Ending &ending) { entry.ending = ending; };
    batcher->add(std::make_unique<Job>(std::move(request), id, manifest.model));
    return id;
  }

  void finish() {
    while (!batcher->isIdle())
      batcher->step();
  }

  /// The answer of a request with the rule `isAnother`, without an engine.
  static std::vector<int32_t> answerOf(const Request &request, uint64_t seed) {
    SamplerOptions options = request.sampling;
    options.seed = seed;
    Sampler sampler(options, 40, kTokens);
    uint64_t hash = 0;
    for (const int32_t id : request.prompt.ids) {
      hash = hashAfter(hash, id);
      sampler.acceptPrompt(id);
    }
    std::vector<int32_t> drawn;
    while (std::ssize(drawn) < request.maxTokens) {
      std::vector<float> logits(40, -INFINITY);
      for (int32_t id = 0; id < kTokens; ++id)
        if (isAnother(drawn, id))
          logits[static_cast<size_t>(id)] = hashLogit(hash, id);
      drawn.push_back(
          sampler.sample(logits, request.prompt.ids.size() + drawn.size()));
      sampler.acceptDrawn(drawn.back());
      hash = hashAfter(hash, drawn.back());
    }
    return drawn;
  }

  Manifest manifest;
  ThreadPool pool{1};
  std::optional<Engine> engine;
  std::optional<Batcher> batcher;
  std::map<RequestId, Told> told;
  RequestId last = 0;
};

} // namespace

TEST(TokenConstraintTest, FindsTheOnlyToken) {
  const auto onlyOf = [](std::vector<uint32_t> words) {
    return onlyAllowed(words);
  };
  for (int32_t id = 0; id < 96; ++id) {
    std::vector<uint32_t> words(3);
    const auto word = static_cast<size_t>(id) / 32;
    words[word] = 1U << id % 32;
    EXPECT_EQ(onlyOf(words), id);
    words[word] |= 1U << (id + 1) % 32;
    EXPECT_EQ(onlyOf(words), std::nullopt);
    words[word] = 1U << id % 32;
    words[(word + 1) % 3] = 1;
    EXPECT_EQ(onlyOf(words), std::nullopt);
  }
  EXPECT_EQ(onlyOf({}), std::nullopt);
  EXPECT_EQ(onlyOf({0, 0}), std::nullopt);
}

TEST_F(ConstraintTest, ChangesNothingWhereAllTokensMayCome) {
  for (const double temperature : {0.0, 1.0}) {
    std::vector<Told> answers;
    for (int way = 0; way < 3; ++way) {
      open({.sequences = 2});
      Request request = requestOf({1, 2, 3}, 50, temperature);
      if (way > 0)
        request.constraint = std::make_shared<Anything>(way == 2);
      last = 0;
      const RequestId id = add(std::move(request));
      finish();
      answers.push_back(told[id]);
      told.clear();
    }
    for (const Told &each : answers) {
      EXPECT_EQ(each.drawn.size(), 50U);
      EXPECT_EQ(each.drawn, answers[0].drawn);
      EXPECT_EQ(each.logprobs, answers[0].logprobs);
    }
  }
}

// Masks come before all samplers, and logprobs are those of the raw logits.
TEST_F(ConstraintTest, DrawsAllowedTokens) {
  // With few pages, requests are preempted.
  open({.sequences = 4, .kvPages = 8});
  std::map<RequestId, Request> requests;
  std::map<RequestId, std::shared_ptr<Rule>> rules;
  for (int32_t first = 0; first < 4; ++first) {
    Request request = requestOf({first, 5, 6}, 150, first == 0 ? 0 : 1);
    const auto rule = std::make_shared<Rule>(isAnother);
    request.constraint = rule;
    const RequestId id = add(request);
    requests[id] = request;
    rules[id] = rule;
  }
  finish();
  EXPECT_GT(batcher->counts().preemptions, 0);
  for (const auto &[id, request] : requests) {
    EXPECT_EQ(told[id].drawn, answerOf(request, id)) << id;
    EXPECT_EQ(rules[id]->ids, told[id].drawn);
    EXPECT_EQ(told[id].ending->reason, EndReason::Length);
    for (const float logprob : told[id].logprobs)
      EXPECT_TRUE(std::isfinite(logprob));
  }
}

/// Leaves one token behind most: runs of three.
static bool isInRun(std::span<const int32_t> before, int32_t id) {
  if (before.size() % 4 == 0)
    return isAnother(before, id);
  const auto size = static_cast<int32_t>(before.size());
  return id == (before.back() * 7 + size) % kTokens;
}

namespace {
/// A way to draw and to end.
struct ForcedCase {
  const char *name;
  std::function<void(Request &)> change = [](Request &) {};
  size_t isOver = SIZE_MAX, leaves = SIZE_MAX;
};
} // namespace

// Logprobs need a row for each token, so that all are drawn.
TEST_F(ConstraintTest, ForcedTokensAreThoseOfDraws) {
  std::vector<ForcedCase> cases = {
      {"greedy", [](Request &of) { of.sampling.temperature = 0; }},
      {"penalties", [](Request &of) { of.sampling.repetitionPenalty = 1.3F; }},
      {"mirostat", [](Request &of) { of.sampling.mirostat = 2; }},
      {"no token is left", [](Request &of) {
         for (int32_t id = 0; id < kTokens; id += 3)
           of.stopTokens.push_back(id);
         of.sampling.minTokens = 20;
       }}};
  for (int32_t id = 0; id < kTokens; id += 6)
    cases.push_back(
        {"stop tokens", [id](Request &of) { of.stopTokens = {id, id + 1}; }});
  for (size_t size = 1; size < 10; ++size) {
    cases.push_back({"tokens", [size](Request &of) {
                       of.maxTokens = static_cast<int64_t>(size);
                     }});
    cases.push_back({.name = "is over", .isOver = size});
    cases.push_back({.name = "leaves", .leaves = size});
  }
  for (const bool isTight : {false, true}) {
    std::vector<Told> answers[2];
    int64_t steps[2] = {};
    for (const bool isForced : {false, true}) {
      // With few pages, requests are preempted.
      open(isTight ? EngineOptions{.sequences = 4, .kvPages = 6}
                   : EngineOptions{.sequences = 8},
           {.paced = false}, 64);
      last = 0;
      told.clear();
      std::vector<std::shared_ptr<Rule>> rules;
      for (const ForcedCase &each : cases) {
        Request request = requestOf({1, 2, 3}, isTight ? 140 : 40);
        each.change(request);
        rules.push_back(std::make_shared<Rule>(isInRun, each.isOver));
        request.constraint = rules.back();
        if (isForced)
          request.logprobs.reset();
        add(std::move(request), each.leaves);
      }
      finish();
      int64_t drawn = 0;
      for (const auto &[id, entry] : told) {
        answers[isForced].push_back(entry);
        drawn += entry.ending->drawnTokens;
        EXPECT_EQ(rules[id - 1]->ids, entry.drawn);
      }
      EXPECT_EQ(batcher->counts().drawnTokens, drawn);
      EXPECT_EQ(batcher->counts().preemptions > 0, isTight);
      steps[isForced] = batcher->counts().steps;
    }
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_EQ(answers[0][i].drawn, answers[1][i].drawn) << cases[i].name;
      EXPECT_EQ(answers[0][i].ending->reason, answers[1][i].ending->reason)
          << cases[i].name;
      EXPECT_EQ(answers[0][i].ending->error, answers[1][i].ending->error);
    }
    EXPECT_NE(answers[0][3].ending->error, "");
    EXPECT_LT(steps[1] * 2, steps[0]);
  }
}

// One step appends a bounded number of tokens. An answer gets as many in a step
// as it would by draws, whatever others wait for.
TEST_F(ConstraintTest, ForcedTokensDelayNobody) {
  const auto isNext = [](std::span<const int32_t> before, int32_t id) {
    return id == std::ssize(before) % kTokens;
  };
  const auto stepsOf = [&](int64_t promptTokens, int32_t requests,
                           bool isForced) {
    open({.sequences = 8}, {.promptTokens = promptTokens, .paced = false}, 64);
    for (int32_t first = 0; first < requests; ++first) {
      Request request = requestOf({first, 2, 3}, 100);
      request.constraint = std::make_shared<Rule>(isNext);
      if (isForced)
        request.logprobs.reset();
      add(std::move(request));
    }
    finish();
    return batcher->counts().steps;
  };
  // A draw and 32 forced tokens in a step.
  EXPECT_EQ(stepsOf(0, 1, true), 4);
  for (const int64_t promptTokens : {1, 7, 0}) {
    const int64_t drawn = stepsOf(promptTokens, 8, false);
    EXPECT_LT(stepsOf(promptTokens, 8, true), drawn) << promptTokens;
  }
}

TEST_F(ConstraintTest, EndsAnAnswerThatIsDone) {
  open({.sequences = 2});
  Request request = requestOf({1, 2}, 50);
  request.constraint = std::make_shared<Rule>(isAnother, 7);
  const RequestId id = add(std::move(request));
  finish();
  EXPECT_EQ(told[id].drawn.size(), 7U);
  EXPECT_EQ(told[id].ending->reason, EndReason::Stop);
}

TEST_F(ConstraintTest, FailsAlone) {
  open({.sequences = 3});
  const auto never = [](auto, int32_t) { return false; };
  const auto late = [](std::span<const int32_t> before, int32_t) {
    if (before.size() == 5)
      throw Error("the mask takes too long");
    return true;
  };
  Request request = requestOf({1, 2}, 20);
  request.constraint = std::make_shared<Rule>(never);
  const RequestId none = add(request);
  request.constraint = std::make_shared<Rule>(late);
  const RequestId slow = add(request);
  // A token that somebody gives must be allowed, too.
  request.constraint = std::make_shared<Rule>(isAnother);
  request.onDraw = [](auto...) { return 3; };
  const RequestId given = add(request);
  request.constraint = nullptr;
  request.onDraw = nullptr;
  const RequestId other = add(request);
  finish();
  EXPECT_EQ(told[none].ending->reason, EndReason::Failed);
  EXPECT_NE(told[none].ending->error.find("no token is left"),
            std::string::npos);
  EXPECT_EQ(told[slow].ending->error, "the mask takes too long");
  EXPECT_EQ(told[slow].drawn.size(), 5U);
  EXPECT_EQ(told[given].ending->error, "token 3 may not come");
  EXPECT_EQ(told[other].ending->reason, EndReason::Length);
  EXPECT_EQ(told[other].drawn.size(), 20U);
  request.beams.beams = 2;
  request.sampling = {};
  request.constraint = std::make_shared<Rule>(isAnother);
  EXPECT_THROW(Job(request, 1, manifest.model), Error);
}
