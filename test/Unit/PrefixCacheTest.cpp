//===- PrefixCacheTest.cpp - Kept pages and snapshots by their tokens -----===//

#include "engine/PrefixCache.h"
#include "engine/RootTable.h"

#include <gtest/gtest.h>

using namespace qwen;

// All entries have the same hash.
TEST(PrefixCache, ComparesTokensParentsAndRoots) {
  SequenceState state({}, {.pages = 1, .sequences = 1, .context = 300});
  PrefixCache cache(state, 1024);
  RootTable roots;
  const RootRef own = roots.intern({.salt = "a"});
  const auto match = [&](std::span<const int32_t> ids, const RootRef &root) {
    return cache.find(ids, {.identity = Identity({.root = root})}).gain;
  };
  const SequenceId sequence = state.open();
  state.extend(sequence, 64);
  std::vector<int32_t> tokens(129, 5);
  PrefixCache::Prefix prefix = {.identity = Identity({.root = own})};
  cache.keep(sequence, std::span(tokens).first(64), prefix);
  EXPECT_EQ(prefix.pages, 1);
  // The page is not its own successor, and the last token always runs.
  EXPECT_EQ(match(tokens, own), 64);
  EXPECT_EQ(match(std::span(tokens).first(64), own), 0);
  EXPECT_EQ(match(tokens, nullptr), 0);
  EXPECT_EQ(match(tokens, roots.intern({.salt = "b"})), 0);
  EXPECT_EQ(match(tokens, roots.intern({.salt = "a"})), 64);
  tokens[63] = 6;
  EXPECT_EQ(match(tokens, own), 0);
  // Taken for other content, it is forgotten.
  tokens[63] = 5;
  state.close(sequence);
  EXPECT_EQ(match(tokens, own), 64);
  state.open();
  state.extend(sequence, 1);
  EXPECT_EQ(match(tokens, own), 0);
}

/// A medium whose bytes all differ from those of another `name`.
static Medium medium(int64_t position, int64_t count, uint8_t name) {
  Medium made{.position = position, .count = count, .rows = 2, .digest = {}};
  made.digest.fill(name);
  return made;
}

// A page and a snapshot have the media that they overlap, however little.
TEST(PrefixCache, MediaOfOneSizeAreNotShared) {
  for (bool fixed : {false, true}) {
    const std::vector<CacheInfo> caches = {{"hash", CacheKind::Fixed, 64, {0}}};
    SequenceState state(
        fixed ? caches : std::vector<CacheInfo>(),
        {.pages = 8, .sequences = 2, .context = 300, .snapshots = 6});
    PrefixCache cache(state, /*snapshotEvery=*/32);
    // Their ids are the same everywhere.
    const std::vector<int32_t> tokens(200, 5);
    // The second crosses a border, and a snapshot lies inside the third.
    const Prompt prompt{
        .media = {medium(3, 20, 1), medium(60, 5, 2), medium(140, 30, 3)}};
    const SequenceId sequence = state.open();
    PrefixCache::Prefix prefix = {.identity = Identity(prompt)};
    for (int64_t length = 32; length <= 192; length += 32) {
      state.extend(sequence, length);
      cache.keep(sequence, tokens, prefix);
    }
    EXPECT_EQ(prefix.pages, 3);
    state.close(sequence);
    const auto match = [&](const std::vector<Medium> &media) {
      return cache.find(tokens, {.identity = Identity({.media = media})}).gain;
    };
    const auto with = [&](size_t index, Medium changed) {
      std::vector<Medium> media = prompt.media;
      media[index] = changed;
      return match(media);
    };
    EXPECT_EQ(match(prompt.media), 192);
    EXPECT_EQ(match({}), 0);
    EXPECT_EQ(with(0, medium(3, 20, 4)), 0);
    EXPECT_EQ(with(0, medium(3, 19, 1)), 0);
    EXPECT_EQ(with(0, medium(4, 20, 1)), 0);
    EXPECT_EQ(with(1, medium(60, 5, 4)), fixed ? 32 : 0);
    // Pages before it are the same.
    EXPECT_EQ(with(2, medium(140, 30, 4)), 128);
    Medium rows = prompt.media[2];
    rows.rows = 3;
    EXPECT_EQ(with(2, rows), 128);
    EXPECT_EQ(match({prompt.media[0], prompt.media[1]}), 128);
    // One behind the pages changes nothing.
    std::vector<Medium> more = prompt.media;
    more.push_back(medium(192, 4, 5));
    EXPECT_EQ(match(more), 192);
    more.back().position = 191;
    EXPECT_EQ(match(more), fixed ? 160 : 128);
    // It ends with the page now: that one has it still, and it is another.
    EXPECT_EQ(with(1, medium(60, 4, 2)), fixed ? 32 : 0);
  }
}

TEST(Snapshots, TheLeastUsefulOneGoes) {
  const std::vector<CacheInfo> caches = {{"hash", CacheKind::Fixed, 64, {0}}};
  SequenceState state(
      caches, {.pages = 4, .sequences = 3, .context = 300, .snapshots = 2});
  Snapshots snapshots(state);
  const std::vector<int32_t> tokens(50, 5), others(50, 6);
  RootTable roots;
  const Identity none, other(Prompt{.root = roots.intern({.salt = "a"})});
  const auto key = [&](const auto &ids, size_t size, bool isOther = false) {
    return Snapshots::Key{isOther ? other : none, 0, 0,
                          std::span(ids).first(size)};
  };
  const SequenceId a = state.open(), b = state.open(), c = state.open();
  state.extend(a, 10);
  snapshots.take(a, key(tokens, 10));
  state.extend(b, 20);
  snapshots.take(b, key(others, 20));
  EXPECT_FALSE(snapshots.find(key(tokens, 9)));
  EXPECT_FALSE(snapshots.find(key(tokens, 50, true)));
  EXPECT_TRUE(snapshots.find(key(others, 50)));
  // A snapshot whose page is taken is of no use.
  state.close(b);
  state.extend(c, 192);
  EXPECT_FALSE(snapshots.find(key(others, 50)));
  state.truncate(c, 0);
  state.extend(c, 30);
  snapshots.take(c, key(others, 30));
  EXPECT_TRUE(snapshots.find(key(tokens, 50)));
  // Of equal tokens, there is one snapshot.
  snapshots.take(a, key(tokens, 10));
  state.extend(a, 40);
  snapshots.take(a, key(tokens, 40));
  EXPECT_EQ(state.position(*snapshots.find(key(tokens, 50))), 40);
  EXPECT_EQ(state.position(*snapshots.find(key(tokens, 39))), 10);
  EXPECT_FALSE(snapshots.find(key(others, 50)));
}
