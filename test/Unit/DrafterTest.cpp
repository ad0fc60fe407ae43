//===- DrafterTest.cpp - Drafts of answers, and programs between calls ----===//

#include "engine/drafters/Drafter.h"
#include "HashModel.h"
#include "TempDir.h"
#include "engine/Batcher.h"

#include <gtest/gtest.h>

#include <map>

using namespace qwen;
using namespace qwen::test;

namespace {
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
    rules.paced = false; // Steps are counted: none may depend on the clock.
    engine.emplace(manifest, nullptr, entries, *pool, options);
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
  std::optional<ThreadPool> pool;
  std::optional<Engine> engine;
  std::optional<Batcher> batcher;
  std::map<RequestId, Answer> answers;
  std::function<void()> onToken = [] {};
};
} // namespace

/// Ways to draw a token that depend on the tokens before it.
static std::vector<Request> waysToDraw() {
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
  ways[6].noRepeatNgram = 2;
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

// Drafts are right up to any token, beside each other and where pages lack.
TEST_F(DrafterTest, DraftsChangeNoAnswer) {
  manifest.programs[0].limits.rows = 40;
  const auto run = [&](int64_t pages, int threads) {
    open({.sequences = 6, .kvPages = pages}, {}, threads);
    int32_t first = 0;
    for (Request request : waysToDraw()) {
      request.prompt.ids = squareTokens(30 + 7 * first, first);
      request.maxTokens = 100 + first++;
      add(std::move(request));
    }
    finish();
    return answers;
  };
  const std::map<RequestId, Answer> known = run(0, 1);
  const int64_t steps = batcher->counts().steps;
  for (const auto &[id, answer] : known)
    EXPECT_EQ(answer.error, "") << id;
  for (const bool errs : {false, true})
    for (const int threads : {1, 3})
      for (const int64_t pages : {0, 7}) {
        draftFrom(known, errs);
        run(pages, threads);
        for (const auto &[id, answer] : known)
          EXPECT_TRUE(answers[id] == answer)
              << "way " << (id - 1) / 2 << " of " << id << ", " << threads
              << " threads, " << pages << " pages, wrong drafts: " << errs
              << ": " << answers[id].error;
        EXPECT_GT(script.accepted, script.drafted / 5);
        if (errs)
          EXPECT_LT(script.accepted, script.drafted);
        EXPECT_EQ(batcher->counts().preemptions > 0, pages != 0);
        if (!pages)
          EXPECT_LT(batcher->counts().steps * 3, steps * 2);
      }
}

namespace {
/// Notes when it is asked.
class Noted final : public TokenConstraint {
public:
  explicit Noted(std::string &events) : events(events) {}
  std::span<const uint32_t> allowed() override {
    events += 'a';
    return {};
  }
  void accept(int32_t) override {}
  bool isDone() const override { return false; }

private:
  std::string &events;
};
} // namespace

// Before the first token is told, all rows of the call have been drawn from.
TEST_F(DrafterTest, DrawsOfDraftsAreAhead) {
  manifest.programs[0].limits.rows = 16;
  std::string events;
  onToken = [&] { events += 't'; };
  const auto run = [&] {
    open({.sequences = 1});
    events.clear();
    Request request = requestOf(3, 12);
    request.constraint = std::make_shared<Noted>(events);
    request.logprobs = 0;
    add(std::move(request));
    finish();
    return answers;
  };
  const std::map<RequestId, Answer> known = run();
  script.draft = [&](const Track &track, int64_t, std::vector<int32_t> &next) {
    const std::vector<int32_t> &ids = known.at(1).ids;
    const size_t drawn = track.settled().size() - 3;
    next.assign(ids.begin() + static_cast<int64_t>(drawn),
                ids.begin() +
                    static_cast<int64_t>(std::min(drawn + 3, ids.size())));
    events += 'd';
  };
  EXPECT_TRUE(run() == known);
  EXPECT_EQ(events, "atdaaaattttdaaaattttdaaattt");
}

TEST_F(DrafterTest, RightDraftsAreAccepted) {
  manifest.programs[0].limits.rows = 16;
  const auto run = [&] {
    open({.sequences = 1});
    add(requestOf(3, 50));
    finish();
    return answers;
  };
  const std::map<RequestId, Answer> known = run();
  EXPECT_EQ(batcher->counts().steps, 50);
  draftFrom(known, false);
  EXPECT_TRUE(run() == known);
  EXPECT_EQ(script.accepted, script.drafted);
  EXPECT_EQ(batcher->counts().steps + script.accepted, 50);
  EXPECT_EQ(batcher->counts().drawnTokens, 50);
}

// Eight requests with five drafts each, and a prompt beside them.
TEST_F(DrafterTest, DraftsAndPromptsNeedNoFurtherCall) {
  for (int64_t rows : {3, 7, 8, 9, 16, 20, 48, 64})
    for (int64_t prompt : {0, 300}) {
      manifest.programs[0].limits.rows = rows;
      script = {};
      const auto start = [&] {
        open({.sequences = 9});
        for (int32_t i = 0; i < 8; ++i)
          add(requestOf(5 + i, 20, i));
        while (answers[8].ids.empty())
          batcher->step();
      };
      start();
      finish();
      const std::map<RequestId, Answer> known = answers;
      bool isOn = false;
      script.draft = [&](const Track &track, int64_t most,
                         std::vector<int32_t> &next) {
        const std::span<const int32_t> ids = known.at(track.job().id()).ids;
        const std::span<const int32_t> rest = ids.subspan(
            track.settled().size() - track.job().request().prompt.ids.size());
        if (isOn)
          for (int32_t id :
               rest.first(static_cast<size_t>(std::min<int64_t>(most, 5))))
            next.push_back(id);
      };
      start();
      if (prompt)
        add(requestOf(prompt, 1, 9));
      isOn = true;
      const int64_t before = batcher->counts().drawnTokens;
      const int64_t calls = (8 + rows - 1) / rows;
      EXPECT_EQ(callsOfStep(), calls) << rows << " " << prompt;
      const int64_t drawn = batcher->counts().drawnTokens - before;
      EXPECT_EQ(drawn,
                std::clamp<int64_t>(calls * rows - (prompt ? 1 : 0), 8, 48));
      EXPECT_EQ(script.accepted, drawn - 8);
      EXPECT_EQ(script.drafted, drawn - 8);
      isOn = false;
      finish();
      for (const auto &[id, answer] : known)
        EXPECT_TRUE(answers[id] == answer);
    }
}

// Preempted, cancelled and failed ones too; those that draw no tokens in turn
// have none.
TEST_F(DrafterTest, IsToldTheBeginAndTheEndOfEachAnswer) {
  manifest.programs[0].limits.rows = 20;
  script.draft = [](const Track &track, int64_t, std::vector<int32_t> &next) {
    EXPECT_FALSE(track.job().request().rows);
    EXPECT_FALSE(track.job().beams());
    next.push_back(3);
  };
  open({.sequences = 6, .kvPages = 7});
  for (int32_t i = 0; i < 6; ++i)
    add(requestOf(30 + 10 * i, 100, i));
  Request request = requestOf(3, 9);
  request.prompt.ids.push_back(kNotFiniteId);
  const RequestId failed = add(std::move(request));
  const RequestId nothing = add(requestOf(20, 0));
  request = requestOf(9, 9);
  request.rows = {RowKind::Logits, [](std::span<const float>) {}};
  add(std::move(request));
  request = requestOf(9, 9);
  request.beams.beams = 2;
  add(std::move(request));
  const RequestId cancelled = add(requestOf(9, 90));
  for (int i = 0; i < 6; ++i)
    batcher->step();
  EXPECT_LE(script.begun, 6);
  batcher->cancel(cancelled);
  finish();
  EXPECT_GT(batcher->counts().preemptions, 0);
  EXPECT_EQ(answers[failed].end, EndReason::Failed);
  EXPECT_EQ(answers[nothing].end, EndReason::Length);
  EXPECT_LE(script.begun, 9);
  EXPECT_GE(script.begun, 8);
}

// Too many, no tokens of the vocabulary, and none behind the answer.
TEST_F(DrafterTest, DraftsThatCannotRunAreCut) {
  manifest.programs[0].limits.rows = 20;
  const auto run = [&](int64_t context, int64_t most) {
    manifest.model.context = context;
    open({.sequences = 2});
    add(requestOf(9, most));
    add(requestOf(12, 70));
    finish();
    return answers;
  };
  for (const auto &[context, most] :
       {std::pair<int64_t, int64_t>{400, 1}, {400, 2}, {400, 40}, {60, 400}}) {
    script = {};
    const std::map<RequestId, Answer> known = run(context, most);
    for (const int32_t wrong : {40, -1, INT32_MAX}) {
      script.draft = [&](const Track &track, int64_t,
                         std::vector<int32_t> &next) {
        EXPECT_LE(std::ssize(next) + track.settledSize(), 400);
        next = known.at(track.job().id()).ids;
        next.erase(next.begin(), next.begin() + (track.settledSize() -
                                                 track.job().promptSize()));
        next.resize(next.size() + 30, 5);
        next[3] = wrong;
      };
      EXPECT_TRUE(run(context, most) == known);
    }
  }
}

TEST_F(DrafterTest, DraftsStepBackWithoutASnapshot) {
  for (const int64_t stepBack : {int64_t{0}, kHashStepBack}) {
    manifest = hashManifest(400, 64, /*fixed=*/true, stepBack);
    manifest.programs[0].limits.rows = 20;
    entries = {stepBack ? steppingHashForward : fixedHashForward};
    const auto run = [&] {
      open({.sequences = 3});
      for (int32_t i = 0; i < 3; ++i)
        add(requestOf(9 + i, 120, i));
      finish();
      return answers;
    };
    script = {};
    const std::map<RequestId, Answer> known = run();
    draftFrom(known, true);
    EXPECT_TRUE(run() == known);
    EXPECT_EQ(script.most, stepBack);
    // A wrong draft makes no token run again.
    EXPECT_EQ(batcher->counts().promptTokens, 9 + 10 + 11);
  }
}

TEST_F(DrafterTest, FailsWithItsRequests) {
  manifest.programs[0].limits.rows = 20;
  script.begin = [](const Track &track) {
    if (track.job().id() == 2)
      throw Error("no place for a head");
  };
  script.draft = [](const Track &track, int64_t, std::vector<int32_t> &next) {
    next.push_back(1);
    if (track.job().id() == 3 && track.settledSize() > 20)
      throw Error("no draft");
  };
  open({.sequences = 4});
  for (int32_t i = 0; i < 4; ++i)
    add(requestOf(9, 40, i));
  finish();
  EXPECT_EQ(answers[2].error, "no place for a head");
  EXPECT_TRUE(answers[2].ids.empty());
  EXPECT_EQ(answers[3].error, "no draft");
  EXPECT_GE(answers[3].ids.size(), 12U);
  for (RequestId id : {1, 4}) {
    EXPECT_EQ(answers[id].end, EndReason::Length);
    EXPECT_EQ(answers[id].ids.size(), 40U);
  }
  script.follow = [](Step &step) { step.between("head", {}); };
  open({.sequences = 2});
  add(requestOf(9, 40));
  finish();
  EXPECT_EQ(answers[1].error, "handmade has no program \"head\"");
}

//===----------------------------------------------------------------------===//
// A program that reads rows of `forward`
//===----------------------------------------------------------------------===//

static constexpr int64_t kRowsOffset = 512;

static float &rowOf(const Context *context, int64_t token) {
  return reinterpret_cast<float *>(context->arena + kRowsOffset)[token];
}

/// Leaves a number of each token in its row.
static void forwardWithRows(const Context *context, int32_t thread,
                            int32_t threads) {
  if (thread == 0)
    for (int64_t t = 0; t < context->tokens(); ++t)
      rowOf(context, t) =
          static_cast<float>(context->positions[t] * 64 + context->tokenIds[t]);
  hashForward(context, thread, threads);
}

/// What a draft head has read: position, the token there, and the next one.
static std::vector<std::array<int32_t, 3>> headRan;

static void headOfRows(const Context *context, int32_t thread, int32_t) {
  for (int64_t t = 0; thread == 0 && t < context->tokens(); ++t) {
    const auto value = static_cast<int32_t>(rowOf(context, t));
    headRan.push_back({value / 64, value % 64, context->tokenIds[t]});
    EXPECT_EQ(value / 64, context->positions[t]);
    // As a head with logits overwrites those of `forward`.
    context->result[0] = NAN;
  }
}

/// Runs the head where the next token is settled.
static void runHead(Step &step, Engine &engine) {
  std::vector<Token> batch;
  const std::span<const Step::Place> places = step.tokens();
  for (size_t i = 0; i < places.size();) {
    const Track &track = *places[i].track;
    const size_t first = places[i].row;
    batch.clear();
    for (; i < places.size() && places[i].track == &track; ++i)
      if (const auto next = static_cast<size_t>(places[i].position) + 1;
          next < track.settled().size())
        batch.push_back(
            {track.known()[next], track.sequence(), places[i].position, false});
    if (batch.empty())
      continue;
    EXPECT_EQ(engine.state().length(track.sequence(), 1), batch[0].position);
    step.between("head", batch, {}, static_cast<int64_t>(first));
  }
}

TEST_F(DrafterTest, AProgramRunsBetweenTheCallsOfAStep) {
  manifest = hashManifest(400, 8);
  ProgramValue rows = {"normed", 1, 1, kRowsOffset};
  manifest.programs[0].outputs.push_back(rows);
  ProgramInfo head = manifest.programs[0];
  head.name = "head";
  head.caches = {{"head", CacheKind::Paged, 64, {0}}};
  manifest.caches.push_back(head.caches[0]);
  rows.from = "forward";
  head.inputs = {{std::string(kIdsName)}, rows};
  head.outputs = {};
  manifest.programs.push_back(head);
  entries = {forwardWithRows, headOfRows};
  const auto run = [&] {
    // Five sequences need three calls in each step.
    open({.sequences = 5}, {.promptTokens = 8, .prefixCache = false});
    for (int32_t i = 0; i < 5; ++i)
      add(requestOf(20 + i, 30, i));
    finish();
    return answers;
  };
  const std::map<RequestId, Answer> known = run();
  draftFrom(known, true);
  script.follow = [this](Step &step) { runHead(step, *engine); };
  headRan.clear();
  EXPECT_TRUE(run() == known);
  EXPECT_GT(script.accepted, 3);
  // Each position once, but the last two of an answer: one is drawn but never
  // runs, and no token follows the other.
  std::vector<std::array<int32_t, 3>> expected;
  for (int32_t i = 0; i < 5; ++i) {
    std::vector<int32_t> all = squareTokens(20 + i, i);
    const std::vector<int32_t> &ids =
        known.at(static_cast<uint64_t>(i) + 1).ids;
    all.insert(all.end(), ids.begin(), ids.end());
    for (int32_t at = 0; at + 1 < std::ssize(all); ++at)
      expected.push_back(
          {at, all[static_cast<size_t>(at)], all[static_cast<size_t>(at) + 1]});
  }
  std::ranges::sort(headRan);
  std::ranges::sort(expected);
  EXPECT_EQ(headRan, expected);
}
