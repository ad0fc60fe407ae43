//===- ProgramStateTest.cpp - Positions of several programs ---------------===//
//
// `forward` has layers 0 and 1, `half` layer 0, and `draft` layer 2.
//
//===----------------------------------------------------------------------===//

#include "engine/PrefixCache.h"

#include <gtest/gtest.h>

using namespace qwen;

namespace {
constexpr size_t kHalf = 1, kDraft = 2;

class ProgramStateTest : public testing::Test {
protected:
  explicit ProgramStateTest(int64_t stepBack = 0) {
    for (const std::vector<int64_t> &layers :
         std::vector<std::vector<int64_t>>{{0, 1}, {0}, {2}}) {
      ProgramInfo program = {};
      program.caches.push_back({"kv", CacheKind::Paged, 1, layers});
      if (stepBack)
        program.caches.push_back(
            {"state", CacheKind::Fixed, 64, layers, stepBack});
      for (const CacheInfo &cache : program.caches)
        mergeCache(caches, cache);
      programs.push_back(program);
    }
    state.emplace(
        caches,
        StateLimits{.pages = 8, .sequences = 4, .context = 300, .snapshots = 2},
        programs);
  }

  /// The positions of `forward`, `half` and `draft`.
  std::vector<int64_t> lengths(SequenceId sequence) const {
    return {state->length(sequence), state->length(sequence, kHalf),
            state->length(sequence, kDraft)};
  }
  using Lengths = std::vector<int64_t>;

  std::vector<CacheInfo> caches;
  std::vector<ProgramInfo> programs;
  std::optional<SequenceState> state;
};

class FixedProgramStateTest : public ProgramStateTest {
protected:
  FixedProgramStateTest() : ProgramStateTest(2) {}

  /// The byte of layer `layer` in the state after `length` positions.
  uint8_t &byteOf(SequenceId sequence, int64_t layer, int64_t length) {
    return state
        ->caches()[1][state->rowAfter(sequence, length) * 192 + layer * 64];
  }
};
} // namespace

TEST_F(ProgramStateTest, EachHasItsOwnLength) {
  const SequenceId a = state->open();
  state->extend(a, 130);
  EXPECT_EQ(lengths(a), (Lengths{130, 130, 0}));
  EXPECT_TRUE(state->canRun(a, kDraft, 0));
  EXPECT_FALSE(state->canRun(a, kDraft, 1));
  state->extend(a, 70, kDraft);
  EXPECT_EQ(lengths(a), (Lengths{130, 130, 70}));
  // It may run positions again, but skip none.
  EXPECT_TRUE(state->canRun(a, kDraft, 5));
  EXPECT_TRUE(state->canRun(a, kDraft, 70));
  EXPECT_FALSE(state->canRun(a, kDraft, 71));
  // `forward` lacks the other layer of what `half` runs ahead.
  state->extend(a, 140, kHalf);
  EXPECT_EQ(lengths(a), (Lengths{130, 140, 70}));
  const SequenceId b = state->branch(a, 66);
  EXPECT_EQ(lengths(b), (Lengths{66, 66, 66}));
  const SequenceId c = state->branch(a, 135);
  EXPECT_EQ(lengths(c), (Lengths{130, 135, 70}));
  state->truncate(a, 133);
  EXPECT_EQ(lengths(a), (Lengths{130, 133, 70}));
  state->truncate(a, 65);
  EXPECT_EQ(lengths(a), (Lengths{65, 65, 65}));
  state->extend(a, 67);
  EXPECT_EQ(lengths(a), (Lengths{67, 67, 65}));
}

// What a shared page has of each program decides, not who shares it.
TEST_F(ProgramStateTest, APrefixHasWhatItsPagesHave) {
  PrefixCache cache(*state, 1024);
  const std::vector<int32_t> tokens(200, 5);
  const auto share = [&] {
    const SequenceId sequence = state->open();
    PrefixCache::Prefix prefix;
    PrefixCache::Hit hit = cache.find(tokens, prefix);
    cache.share(sequence, tokens, prefix, hit);
    return sequence;
  };
  const auto keep = [&](SequenceId sequence) {
    PrefixCache::Prefix prefix;
    cache.keep(sequence, tokens, prefix);
    state->close(sequence);
  };
  const SequenceId a = state->open();
  state->extend(a, 150);
  state->extend(a, 70, kDraft);
  keep(a);
  const SequenceId b = share();
  EXPECT_EQ(lengths(b), (Lengths{128, 128, 70}));
  state->extend(b, 100, kDraft);
  keep(b);
  const SequenceId c = share();
  EXPECT_EQ(lengths(c), (Lengths{128, 128, 100}));
  // A page that has less is not taken for one that has more.
  const SequenceId d = state->open();
  state->extend(d, 128);
  state->extend(d, 128, kDraft);
  PrefixCache::Prefix prefix;
  cache.keep(d, tokens, prefix);
  EXPECT_EQ(lengths(d), (Lengths{128, 128, 128}));
  EXPECT_EQ(state->page(d, 0), state->page(c, 0));
  EXPECT_NE(state->page(d, 1), state->page(c, 1));
  // The front of a page.
  state->close(d);
  const PageId page = state->page(c, 1);
  state->truncate(c, 64);
  EXPECT_EQ(lengths(c), (Lengths{64, 64, 64}));
  state->shareFront(c, page, 50);
  EXPECT_EQ(lengths(c), (Lengths{114, 114, 100}));
  state->truncate(c, 64);
  state->shareFront(c, page, 20);
  EXPECT_EQ(lengths(c), (Lengths{84, 84, 84}));
}

// A snapshot has the state of each program after the positions that it had run.
TEST_F(FixedProgramStateTest, SnapshotsAndStepsBackAreOfAllPrograms) {
  const SequenceId a = state->open();
  EXPECT_TRUE(state->reserveStates(a));
  for (int64_t length = 1; length <= 10; ++length) {
    state->extend(a, length);
    byteOf(a, 0, length) = byteOf(a, 1, length) = static_cast<uint8_t>(length);
  }
  state->extend(a, 7, kDraft);
  byteOf(a, 2, 7) = 77;
  EXPECT_EQ(lengths(a), (Lengths{10, 10, 7}));
  // With fixed state, a position runs once.
  EXPECT_FALSE(state->canRun(a, kDraft, 6));
  EXPECT_TRUE(state->canRun(a, kDraft, 7));
  EXPECT_EQ(state->reachable(a, 9), 9);
  EXPECT_EQ(state->reachable(a, 7), 0);
  const SnapshotId snapshot = state->snapshot(a);
  const SequenceId b = state->branch(a, 8);
  EXPECT_EQ(lengths(b), (Lengths{8, 8, 7}));
  EXPECT_EQ(byteOf(b, 1, 8), 8);
  EXPECT_EQ(byteOf(b, 2, 7), 77);
  state->extend(a, 11);
  // `half` shares a state with `forward`, which must not go on from there.
  state->extend(a, 12, kHalf);
  EXPECT_FALSE(state->canRun(a, 0, 11));
  state->truncate(a, 11);
  EXPECT_TRUE(state->canRun(a, 0, 11));
  state->extend(a, 8, kDraft);
  byteOf(a, 2, 8) = 88;
  state->truncate(a, 10);
  EXPECT_EQ(lengths(a), (Lengths{10, 10, 8}));
  state->restore(a, snapshot);
  EXPECT_EQ(lengths(a), (Lengths{10, 10, 7}));
  EXPECT_EQ(byteOf(a, 0, 10), 10);
  EXPECT_EQ(byteOf(a, 2, 7), 77);
  // Where pages lack positions of `draft`, it starts over.
  const SequenceId c = state->open();
  state->extend(c, 10);
  byteOf(c, 2, 0) = 9;
  state->restore(c, snapshot);
  EXPECT_EQ(lengths(c), (Lengths{10, 10, 0}));
  EXPECT_EQ(byteOf(c, 1, 10), 10);
  state->extend(c, 1, kDraft);
  EXPECT_EQ(byteOf(c, 2, 0), 0);
}
