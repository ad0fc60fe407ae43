//===- DrafterTest.cpp - Drafts of answers, and programs between calls ----===//

#include "DrafterTest.h"
#include "TempDir.h"

using namespace qwen;
using namespace qwen::test;

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

// Wrong drafts with numbers that are not finite, before and behind right ones.
TEST_F(DrafterTest, WrongDraftsThatFailLeaveTheAnswer) {
  for (const bool isFixed : {false, true}) {
    manifest = hashManifest(400, 64, isFixed, isFixed ? kHashStepBack : 0);
    manifest.programs[0].limits.rows = 20;
    entries = {isFixed ? steppingHashForward : hashForward};
    const auto run = [&] {
      open({.sequences = 2});
      for (int32_t i = 0; i < 2; ++i)
        add(requestOf(9 + i, 70, i));
      finish();
      return answers;
    };
    script = {};
    const std::map<RequestId, Answer> known = run();
    draftFrom(known, false);
    script.draft = [step = size_t{0},
                    right = script.draft](const Track &track, int64_t most,
                                          std::vector<int32_t> &next) mutable {
      right(track, most, next);
      next[++step % next.size()] = kNotFiniteId;
    };
    EXPECT_TRUE(run() == known);
    EXPECT_GT(script.accepted, 0);
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

// The states of few answers are kept, so few have drafts in a step.
TEST_F(DrafterTest, FewAnswersOfAHybridHaveDraftsInAStep) {
  manifest = hashManifest(400, 64, /*fixed=*/true, kHashStepBack);
  manifest.programs[0].limits.rows = 40;
  entries = {steppingHashForward};
  const auto run = [&](Speculate speculate) {
    open({.sequences = 7, .speculate = speculate});
    for (int32_t i = 0; i < 7; ++i)
      add(requestOf(9 + i, 120, i));
    finish();
    return answers;
  };
  script = {};
  const std::map<RequestId, Answer> known = run(Speculate::Auto);
  for (const Speculate speculate : {Speculate::Off, Speculate::Auto}) {
    draftFrom(known, true);
    EXPECT_TRUE(run(speculate) == known);
    const BatcherCounts counts = batcher->counts();
    if (speculate == Speculate::Auto)
      EXPECT_LE(counts.drafts, 4 * counts.steps);
    else
      EXPECT_GT(counts.drafts, 5 * counts.steps);
    EXPECT_GT(counts.acceptedTokens, 100);
    EXPECT_EQ(counts.promptTokens, 7 * 9 + 21);
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
