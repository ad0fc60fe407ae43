//===- PrefixCacheTest.cpp - Kept pages and snapshots by their tokens -----===//

#include "engine/PrefixCache.h"

#include <gtest/gtest.h>

using namespace qwen;

// All entries have the same hash.
TEST(PrefixCache, ComparesTokensParentsAndSalts) {
  SequenceState state({}, {.pages = 1, .sequences = 1, .context = 300});
  PrefixCache cache(state);
  const auto match = [&](std::span<const int32_t> ids, uint64_t salt) {
    return cache.find(ids, {.salt = salt}).gain;
  };
  const SequenceId sequence = state.open();
  state.extend(sequence, 64);
  std::vector<int32_t> tokens(129, 5);
  PrefixCache::Prefix prefix = {.salt = 3};
  cache.keep(sequence, std::span(tokens).first(64), prefix);
  EXPECT_EQ(prefix.pages, 1);
  // The page is not its own successor, and the last token always runs.
  EXPECT_EQ(match(tokens, 3), 64);
  EXPECT_EQ(match(std::span(tokens).first(64), 3), 0);
  EXPECT_EQ(match(tokens, 0), 0);
  tokens[63] = 6;
  EXPECT_EQ(match(tokens, 3), 0);
  // Taken for other content, it is forgotten.
  tokens[63] = 5;
  state.close(sequence);
  EXPECT_EQ(match(tokens, 3), 64);
  state.open();
  state.extend(sequence, 1);
  EXPECT_EQ(match(tokens, 3), 0);
}

TEST(Snapshots, TheLeastUsefulOneGoes) {
  const std::vector<CacheInfo> caches = {{"hash", CacheKind::Fixed, 64, {0}}};
  SequenceState state(
      caches, {.pages = 4, .sequences = 3, .context = 300, .snapshots = 2});
  Snapshots snapshots(state);
  const std::vector<int32_t> tokens(50, 5), others(50, 6);
  const auto key = [](const auto &ids, size_t size, uint64_t salt = 0) {
    return Snapshots::Key{salt, 0, std::span(ids).first(size)};
  };
  const SequenceId a = state.open(), b = state.open(), c = state.open();
  state.extend(a, 10);
  snapshots.take(a, key(tokens, 10));
  state.extend(b, 20);
  snapshots.take(b, key(others, 20));
  EXPECT_FALSE(snapshots.find(key(tokens, 9)));
  EXPECT_FALSE(snapshots.find(key(tokens, 50, 1)));
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
