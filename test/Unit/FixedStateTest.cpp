//===- FixedStateTest.cpp - Sequences with fixed caches -------------------===//

#include "HashModel.h"
#include "TempDir.h"
#include "engine/Session.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

using namespace qwen;
using namespace qwen::test;

namespace {
/// What a test knows of a sequence or a snapshot of a hash model.
using Tokens = std::vector<int32_t>;

uint64_t hashOf(const Tokens &tokens) {
  uint64_t hash = 0;
  for (int32_t id : tokens)
    hash = hashAfter(hash, id);
  return hash;
}

class FixedStateTest : public testing::Test {
protected:
  void open(const EngineOptions &options, bool stepsBack = false) {
    engine.reset();
    manifest =
        hashManifest(200, 8, /*fixed=*/true, stepsBack ? kHashStepBack : 0);
    engine.emplace(
        manifest, nullptr,
        std::vector{stepsBack ? steppingHashForward : fixedHashForward}, pool,
        options);
  }

  /// Runs `ids` in a sequence that has the tokens `before`, and appends them to
  /// these. Each row must be that of all tokens.
  void run(SequenceId sequence, const Tokens &ids, Tokens &before) {
    std::vector<Token> batch;
    for (int32_t id : ids)
      batch.push_back(
          {id, sequence, std::ssize(before) + std::ssize(batch), true});
    const size_t first = before.size();
    before.insert(before.end(), ids.begin(), ids.end());
    size_t rows = 0;
    engine->forward(batch, [&](size_t index, std::span<float> row) {
      const auto end = before.begin() + static_cast<int64_t>(first + index + 1);
      const uint64_t hash = hashOf({before.begin(), end});
      EXPECT_EQ(row[5], hashLogit(hash, 5)) << "token " << index;
      ++rows;
    });
    EXPECT_EQ(rows, ids.size());
  }

  /// Opens a sequence that keeps several states if the model can step back.
  SequenceId openStepping() {
    const SequenceId sequence = engine->state().open();
    engine->state().reserveStates(sequence);
    return sequence;
  }

  void runRandomly(bool stepsBack);

  Manifest manifest;
  ThreadPool pool{2};
  std::optional<Engine> engine;
};
} // namespace

TEST_F(FixedStateTest, SaysWhatIsThere) {
  open({.sequences = 2, .snapshotBytes = 128});
  SequenceState &state = engine->state();
  EXPECT_EQ(state.fixedBytes(), 128);
  EXPECT_EQ(state.maxSnapshots(), 1);
  const SequenceId sequence = state.open();
  EXPECT_EQ(state.freeSequences(), 1);
  Tokens tokens;
  run(sequence, {1, 2, 3}, tokens);
  const SnapshotId snapshot = state.snapshot(sequence);
  EXPECT_EQ(state.position(snapshot), 3);
  EXPECT_EQ(state.freeSnapshots(), 0);
  EXPECT_EQ(messageOf([&] { state.snapshot(sequence); }),
            "all 1 snapshots are in use");
  run(sequence, {4, 5, 6, 7}, tokens);
  EXPECT_EQ(state.reachable(sequence, 2), 0);
  EXPECT_EQ(state.reachable(sequence, 6), 3);
  EXPECT_EQ(state.reachable(sequence, 9), 7);
  EXPECT_EQ(messageOf([&] { state.truncate(sequence, 2); }),
            "sequence 0 has no snapshot at position 2: it can keep 0 positions "
            "or 3");
  EXPECT_EQ(messageOf([&] { state.branch(sequence, 5); }),
            "sequence 0 has no snapshot at position 5: it can keep 3 positions "
            "or 7");
  EXPECT_EQ(state.length(sequence), 7);
  // Behind other tokens, the snapshot is no longer one of the sequence.
  state.truncate(sequence, 0);
  EXPECT_EQ(state.reachable(sequence, 3), 0);
  EXPECT_EQ(messageOf([&] { state.restore(sequence, snapshot); }),
            "sequence 0 has 0 positions and cannot keep 3");
  state.drop(snapshot);
  EXPECT_EQ(state.freeSnapshots(), 1);
  for (SnapshotId id : {snapshot, -1, 1})
    EXPECT_EQ(messageOf([&] { state.drop(id); }),
              "snapshot " + std::to_string(id) + " does not exist");
}

// Drafts that are removed from a kept page do not touch what was kept.
TEST_F(FixedStateTest, APageIsKeptWhereItsPositionsStay) {
  open({.sequences = 1}, /*stepsBack=*/true);
  SequenceState &state = engine->state();
  const SequenceId a = openStepping();
  Tokens tokens;
  run(a, {1, 2, 3}, tokens);
  const PageId page = state.page(a, 0);
  const uint64_t serial = state.keep(page);
  run(a, {4, 5}, tokens);
  state.truncate(a, 4);
  EXPECT_EQ(state.serial(page), serial);
  state.truncate(a, 3);
  EXPECT_EQ(state.serial(page), serial);
  state.truncate(a, 2);
  EXPECT_EQ(state.serial(page), 0U);
}

// Each of the last lengths continues as a fresh run of the same tokens does.
TEST_F(FixedStateTest, StepsBackToEachOfTheLastLengths) {
  for (int64_t back = 0; back <= kHashStepBack; ++back) {
    open({.sequences = 3, .snapshotBytes = 128}, /*stepsBack=*/true);
    SequenceState &state = engine->state();
    const SequenceId a = openStepping(), b = openStepping();
    Tokens tokens, others;
    run(b, {9}, others);
    run(a, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, tokens);
    run(a, {12}, tokens);
    EXPECT_EQ(state.reachable(a, 12 - back), 12 - back);
    EXPECT_EQ(state.reachable(a, 12 - kHashStepBack - 1), 0);
    EXPECT_EQ(state.reachable(b, 0), 0);
    state.truncate(a, 12 - back);
    tokens.resize(static_cast<size_t>(12 - back));
    // It can step further back, but not before the states that it had.
    EXPECT_EQ(state.reachable(a, 12 - kHashStepBack), 12 - kHashStepBack);
    run(a, {20, 21}, tokens);
    run(b, {5, 6}, others);
    // A snapshot and a branch have the present state only.
    const SnapshotId snapshot = state.snapshot(a);
    const SequenceId child = state.branch(a, std::ssize(tokens) - 1);
    EXPECT_TRUE(state.reserveStates(child));
    EXPECT_EQ(state.reachable(child, std::ssize(tokens) - 2), 0);
    Tokens childTokens(tokens.begin(), tokens.end() - 1);
    run(child, {7, 8}, childTokens);
    EXPECT_EQ(state.reachable(child, std::ssize(childTokens) - 1),
              std::ssize(childTokens) - 1);
    Tokens kept = tokens;
    run(a, {30, 31, 32, 33, 34}, tokens);
    state.restore(a, snapshot);
    EXPECT_EQ(state.reachable(a, std::ssize(kept) - 1), 0);
    run(a, {35, 36}, kept);
    state.truncate(a, std::ssize(kept) - 2);
    kept.resize(kept.size() - 2);
    run(a, {37}, kept);
  }
}

// With drafts, few sequences can step back at a time, and any of them.
TEST_F(FixedStateTest, FewSequencesKeepSeveralStates) {
  open({.sequences = 9, .speculate = Speculate::Auto}, /*stepsBack=*/true);
  SequenceState &state = engine->state();
  constexpr int32_t kMost = 4;
  ASSERT_EQ(state.maxStepping(), kMost);
  std::vector<Tokens> tokens(9);
  std::vector<SequenceId> ids;
  for (Tokens &of : tokens)
    run(ids.emplace_back(state.open()), {1, 2, 3, 4, 5}, of);
  for (int turn = 0; turn < 9; ++turn) {
    const auto first = static_cast<size_t>(turn);
    for (size_t i = 0; i < ids.size(); ++i) {
      const SequenceId of = ids[(first + i) % ids.size()];
      EXPECT_EQ(state.reserveStates(of), i < kMost) << i;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t at = (first + i) % ids.size();
      const int64_t length = std::ssize(tokens[at]);
      run(ids[at], {6, 7, 8 + turn}, tokens[at]);
      EXPECT_EQ(state.reachable(ids[at], length + 1),
                i < kMost ? length + 1 : 0);
      if (i < kMost) {
        state.truncate(ids[at], length + 1);
        tokens[at].resize(static_cast<size_t>(length + 1));
      }
      state.releaseStates(ids[at]);
      EXPECT_EQ(state.reachable(ids[at], std::ssize(tokens[at]) - 1), 0);
    }
  }
  for (const SequenceId id : ids) {
    state.reserveStates(id);
    state.close(id);
  }
  // A closed sequence has returned its rows.
  for (int32_t i = 0; i < kMost; ++i)
    EXPECT_TRUE(state.reserveStates(state.open()));
}

// Random sequences that branch, lose positions and take states back.
TEST_F(FixedStateTest, IsThatAfterTheTokensOfItsSequence) {
  for (bool stepsBack : {false, true})
    runRandomly(stepsBack);
}

void FixedStateTest::runRandomly(bool stepsBack) {
  std::mt19937_64 random(1);
  const auto below = [&](size_t n) {
    return static_cast<size_t>(random() % n);
  };
  open({.sequences = 6,
        .snapshotBytes = 3 * 128 + 1,
        .speculate = Speculate::Auto},
       stepsBack);
  SequenceState &state = engine->state();
  std::map<SequenceId, Tokens> sequences;
  std::map<SnapshotId, Tokens> snapshots;
  const auto any = [&](auto &map) {
    return std::next(map.begin(), static_cast<int64_t>(below(map.size())));
  };
  for (int step = 0; step < 2000; ++step) {
    if (sequences.size() < 2)
      sequences[state.open()] = {};
    const auto chosen = any(sequences);
    const SequenceId sequence = chosen->first;
    Tokens &tokens = chosen->second;
    const auto reached = static_cast<size_t>(state.reachable(
        sequence, static_cast<int64_t>(below(tokens.size() + 1))));
    switch (below(8)) {
    case 0:
      state.truncate(sequence, static_cast<int64_t>(reached));
      tokens.resize(reached);
      break;
    case 1:
      if (sequences.size() < 6)
        sequences[state.branch(sequence, static_cast<int64_t>(reached))] = {
            tokens.begin(), tokens.begin() + static_cast<int64_t>(reached)};
      break;
    case 2:
      if (state.freeSnapshots() > 0) {
        snapshots[state.snapshot(sequence)] = tokens;
      } else {
        const auto old = any(snapshots);
        state.drop(old->first);
        snapshots.erase(old);
      }
      break;
    case 3:
      // A snapshot serves every sequence that begins with its tokens.
      for (const auto &[snapshot, of] : snapshots)
        if (of.size() <= tokens.size() &&
            std::ranges::equal(
                of, Tokens(tokens.begin(), tokens.begin() + std::ssize(of)))) {
          state.restore(sequence, snapshot);
          tokens = of;
        }
      break;
    case 5:
      if (below(2))
        state.reserveStates(sequence);
      else
        state.releaseStates(sequence);
      break;
    case 4:
      if (below(4) == 0 || tokens.size() > 180) {
        state.close(sequence);
        sequences.erase(chosen);
        break;
      }
      [[fallthrough]];
    default: {
      Tokens ids(1 + below(15));
      for (int32_t &id : ids)
        id = static_cast<int32_t>(below(kNotFiniteId));
      if (tokens.size() + ids.size() <= 200)
        run(sequence, ids, tokens);
    }
    }
  }
}

// The tokens before the one that is not finite have their rows, but the state
// after them is gone.
TEST_F(FixedStateTest, ANumberThatIsNotFiniteTakesASequenceBack) {
  for (int kept : {0, 2, 3}) {
    const bool hasSnapshot = kept == 2;
    open({.sequences = 2, .snapshotBytes = 128}, /*stepsBack=*/kept == 3);
    SequenceState &state = engine->state();
    const SequenceId a = openStepping(), b = state.open();
    Tokens tokens;
    run(a, {1, 2}, tokens);
    if (hasSnapshot)
      state.snapshot(a);
    std::vector<size_t> rows;
    const auto failures = engine->run(
        {{{3, a, 2, true},
          {kNotFiniteId, a, 3, true},
          {4, b, 0, true},
          {5, a, 4, true},
          {6, b, 1, true}}},
        [&](size_t index, std::span<float>) { rows.push_back(index); });
    EXPECT_EQ(rows, (std::vector<size_t>{0, 2, 4}));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0].position, 3);
    EXPECT_EQ(state.length(a), kept);
    EXPECT_EQ(state.length(b), 2);
    tokens = Tokens{1, 2, 3};
    tokens.resize(static_cast<size_t>(kept));
    run(a, {7, 8}, tokens);
  }
}

// chat needs this: a template may change earlier turns.
TEST_F(FixedStateTest, ASessionRunsWhatItCannotKeep) {
  open({.snapshotBytes = 3 * 128, .snapshotEvery = 100});
  Session session(*engine, {.temperature = 0});
  const auto answer = [&](Tokens prompt, int64_t snapshotAt, int64_t kept) {
    session.setTokens(prompt, snapshotAt);
    EXPECT_EQ(engine->state().isOpen(0) ? engine->state().length(0) : 0, kept);
    const std::optional<int32_t> drawn = session.next();
    EXPECT_EQ(drawn, hashAnswer({.prompt = {.ids = prompt},
                                 .sampling = {.temperature = 0},
                                 .maxTokens = 1})[0]);
    prompt.push_back(*drawn);
    return prompt;
  };
  Tokens tokens = answer({1, 2, 3, 4}, 3, 0);
  tokens.push_back(9);
  tokens = answer(tokens, 0, 4);
  tokens[3] = 7;
  tokens = answer(tokens, 0, 3);
  tokens[1] = 7;
  tokens = answer(tokens, 0, 0);
  tokens.resize(150, 5);
  tokens = answer(tokens, 0, 8);
  tokens.resize(101);
  tokens = answer(tokens, 0, 100);
}
