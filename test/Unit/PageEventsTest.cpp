//===- PageEventsTest.cpp - Which pages a prefix cache keeps --------------===//

#include "engine/PageEvents.h"
#include "HashModel.h"
#include "engine/Batcher.h"
#include "engine/RootTable.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

using namespace qwen;
using namespace qwen::test;

namespace {
/// The pages that events tell of.
class PageIndex final : public PageEvents {
public:
  uint64_t addCache() override { return ++caches; }
  void store(uint64_t cache, const StoredPage &page) noexcept override {
    EXPECT_EQ(cache, 1u);
    EXPECT_EQ(std::ssize(page.ids), kPageTokens);
    const Key key = {
        page.parent, page.identity.root, {page.ids.begin(), page.ids.end()}};
    EXPECT_TRUE(serials.emplace(key, page.serial).second);
    EXPECT_TRUE(keys.emplace(page.serial, key).second);
  }
  void remove(uint64_t cache, uint64_t serial) noexcept override {
    EXPECT_EQ(cache, 1u);
    const auto found = keys.find(serial);
    ASSERT_NE(found, keys.end());
    serials.erase(found->second);
    keys.erase(found);
    ++removed;
  }

  /// The tokens at the front of a prompt that are there. The last one runs.
  int64_t cachedOf(const Prompt &prompt) const {
    uint64_t last = 0;
    int64_t count = 0;
    while (count + kPageTokens < std::ssize(prompt.ids)) {
      const auto page = prompt.ids.begin() + count;
      const auto found =
          serials.find({last, prompt.root, {page, page + kPageTokens}});
      if (found == serials.end())
        break;
      last = found->second;
      count += kPageTokens;
    }
    return count;
  }
  size_t size() const { return keys.size(); }

  int removed = 0;

private:
  using Key = std::tuple<uint64_t, RootRef, std::vector<int32_t>>;

  uint64_t caches = 0;
  std::map<Key, uint64_t> serials;
  std::map<uint64_t, Key> keys;
};

class PageEventsTest : public testing::Test {
protected:
  /// The cached tokens of an answer to a prompt.
  static int64_t cachedIn(Batcher &batcher, const Manifest &manifest,
                          const Prompt &prompt) {
    int64_t cached = -1;
    Request request{.prompt = prompt, .maxTokens = 70};
    request.onEnd = [&](const Ending &ending) {
      EXPECT_EQ(ending.reason, EndReason::Length) << ending.error;
      cached = ending.cachedTokens;
    };
    batcher.add(std::make_unique<Job>(std::move(request), 1, manifest.model));
    while (!batcher.isIdle())
      batcher.step();
    return cached;
  }
};
} // namespace

// Prompts of common beginnings and two roots, in a pool that has a part of
// them.
TEST_F(PageEventsTest, PredictWhatIsCached) {
  const Manifest manifest = hashManifest(600, 64);
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, std::vector<ForwardFn *>{hashForward}, pool,
                {.sequences = 2, .kvPages = 14});
  PageIndex index;
  RootTable roots;
  const std::array<RootRef, 2> salts = {nullptr, roots.intern({.salt = "s"})};
  std::mt19937 random(7);
  const auto draw = [&](size_t below) { return random() % below; };
  int hits = 0;
  {
    Batcher batcher(engine, {.paced = false, .events = &index});
    for (int i = 0; i < 100; ++i) {
      Prompt prompt{.ids = squareTokens(static_cast<int64_t>(1 + draw(300)),
                                        static_cast<int32_t>(draw(3))),
                    .media = {},
                    .root = salts[draw(2)]};
      const std::vector<int32_t> end = squareTokens(
          static_cast<int64_t>(draw(100)), static_cast<int32_t>(draw(5)));
      prompt.ids.insert(prompt.ids.end(), end.begin(), end.end());
      const int64_t predicted = index.cachedOf(prompt);
      hits += predicted > 0;
      ASSERT_EQ(cachedIn(batcher, manifest, prompt), predicted) << i;
      ASSERT_EQ(static_cast<int64_t>(index.size()), engine.state().keptPages());
    }
  }
  EXPECT_GT(hits, 20);
  EXPECT_GT(index.removed, 20);
  // Nobody hears of what follows the end of a cache.
  const int removed = index.removed;
  Batcher other(engine, {.paced = false});
  cachedIn(other, manifest, {.ids = squareTokens(400, 9)});
  EXPECT_EQ(index.removed, removed);
}
