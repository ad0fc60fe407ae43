//===- PageStoreTest.cpp - Pages and snapshots of another engine ----------===//

#include "HashModel.h"
#include "MemoryStore.h"
#include "engine/Batcher.h"
#include "engine/RootTable.h"
#include "engine/Session.h"

using namespace qwen;
using namespace qwen::test;

namespace {
/// With fixed state, and without; with one thread and with several.
class PageStoreTest : public testing::TestWithParam<std::tuple<bool, int32_t>> {
protected:
  bool isFixed() const { return std::get<0>(GetParam()); }

  /// The tokens that another engine has from the store, of a prompt that must
  /// get its own answer.
  int64_t cachedAnew(const Prompt &prompt, int64_t pages = 0,
                     int64_t snapshots = 4) {
    Engine engine(
        manifest, nullptr,
        std::vector{isFixed() ? fixedHashForward : hashForward}, pool,
        {.sequences = 2, .kvPages = pages, .snapshotBytes = snapshots * 128});
    Batcher batcher(engine,
                    {.paced = false, .snapshotEvery = 64, .store = &store});
    Request request{.prompt = prompt, .maxTokens = 9};
    const std::vector<int32_t> answer = hashAnswer(request);
    std::vector<int32_t> drawn;
    std::optional<int64_t> cached;
    request.onToken = [&](const TokenEvent &event) {
      drawn.push_back(event.id);
      return true;
    };
    request.onEnd = [&](const Ending &ending) {
      EXPECT_EQ(ending.reason, EndReason::Length) << ending.error;
      cached = ending.cachedTokens;
    };
    batcher.add(std::make_unique<Job>(std::move(request), 1, manifest.model));
    while (!batcher.isIdle())
      batcher.step();
    EXPECT_EQ(drawn, answer);
    EXPECT_EQ(engine.state().freePages(), engine.state().pages());
    return cached.value_or(-1);
  }

  /// 250 tokens of a root that engines do not share, though they have the same.
  static Prompt prompt(const std::string &salt = "s") {
    RootTable roots;
    Prompt made{.ids = {}, .media = {}, .root = roots.intern({.salt = salt})};
    for (int32_t i = 0; i < 250; ++i)
      made.ids.push_back(i * i % 37);
    return made;
  }

  Manifest manifest = hashManifest(400, 64, isFixed());
  ThreadPool pool{std::get<1>(GetParam())};
  MemoryStore store;
};
} // namespace

TEST_P(PageStoreTest, AnotherEngineGoesOnWithTheSameBits) {
  EXPECT_EQ(cachedAnew(prompt()), 0);
  // Pages and, with fixed state, a snapshot behind each and at the end.
  EXPECT_EQ(store.entries.size(), isFixed() ? 9u : 4u);
  EXPECT_EQ(store.reads, 0);
  EXPECT_EQ(cachedAnew(prompt()), 192);
  // It needs one snapshot only.
  EXPECT_EQ(store.reads, isFixed() ? 4 : 3);
  // The page that the answer filled is there, too.
  Prompt more = prompt();
  const std::vector<int32_t> answer =
      hashAnswer({.prompt = more, .maxTokens = 9});
  more.ids.insert(more.ids.end(), answer.begin(), answer.end());
  EXPECT_EQ(cachedAnew(more), isFixed() ? 258 : 256);
  // Each end told the store of its pages.
  EXPECT_EQ(store.used.size(), 4u);
  // A prompt that differs behind the first page.
  Prompt other = prompt();
  other.ids[70] = 38 - other.ids[70] % 2 - 2;
  EXPECT_EQ(cachedAnew(other), 64);
}

TEST_P(PageStoreTest, OnlyTheSameIdentityFindsIt) {
  EXPECT_EQ(cachedAnew(prompt()), 0);
  EXPECT_EQ(cachedAnew(prompt("t")), 0);
  RootTable roots;
  Prompt file = prompt();
  file.root = roots.intern({.artifact = "another", .salt = "s"});
  EXPECT_EQ(cachedAnew(file), 0);
  EXPECT_EQ(cachedAnew(file), 192);
  Prompt without = prompt();
  without.root = nullptr;
  const size_t written = store.entries.size();
  EXPECT_EQ(cachedAnew(without), 0);
  EXPECT_EQ(store.entries.size(), written);
  Prompt image = prompt();
  image.media = {{.position = 60, .count = 8, .rows = 2, .digest = {1}}};
  EXPECT_EQ(cachedAnew(image), 0);
  EXPECT_EQ(cachedAnew(image), 192);
  image.media[0].digest = {2};
  EXPECT_EQ(cachedAnew(image), 0);
  image.media[0].position = 64;
  EXPECT_EQ(cachedAnew(image), 64);
}

// A chat that begins again where another one stopped.
TEST_P(PageStoreTest, ASessionGoesOnInAnother) {
  std::vector<int32_t> tokens = prompt().ids;
  const RootRef root = prompt().root;
  const auto talk = [&](bool keeps) {
    Engine engine(manifest, nullptr,
                  std::vector{isFixed() ? fixedHashForward : hashForward}, pool,
                  {.snapshotBytes = 4 * 128});
    Session session(engine, {.temperature = 0}, {}, &store, root);
    session.setTokens(tokens);
    for (int i = 0; i < 4; ++i)
      session.next();
    tokens.assign(session.tokens().begin(), session.tokens().end());
    store.used.clear();
    if (keeps)
      session.keep();
    return session.counts().cachedTokens;
  };
  EXPECT_EQ(talk(true), 0);
  EXPECT_EQ(store.used.size(), 3u);
  // The last token was drawn, and has not run.
  EXPECT_EQ(talk(true), isFixed() ? 253 : 192);
  EXPECT_EQ(talk(false), isFixed() ? 257 : 256);
  EXPECT_EQ(talk(false), isFixed() ? 257 : 256);
}

// Whatever lacks, the prompt runs in place of it.
TEST_P(PageStoreTest, AnswersWithoutWhatIsLostOrDamaged) {
  EXPECT_EQ(cachedAnew(prompt()), 0);
  const auto entries = store.entries;
  for (int64_t lost = 1; lost <= (isFixed() ? 4 : 3); ++lost) {
    // One page runs again, whichever it is. So does a page whose load comes too
    // late for its step because the machine was busy.
    int64_t cached = 0;
    for (int tries = 0; tries < 5 && cached != 128; ++tries) {
      store.entries = entries;
      store.reads = 0;
      store.lostRead = lost;
      cached = cachedAnew(prompt());
    }
    EXPECT_EQ(cached, 128) << "read " << lost;
  }
  store.lostRead = 0;
  // Numbers of positions that the programs cannot have run: a byte of a page
  // and eight of a snapshot, which is smaller.
  for (uint8_t bad : {1, 65, 255})
    for (size_t i = 0; i < 8; ++i) {
      store.entries = entries;
      for (auto &[name, bytes] : store.entries)
        if (i == 0 || bytes.size() < 1000)
          bytes[i] = bad;
      EXPECT_EQ(cachedAnew(prompt()), i == 0 || isFixed() ? 0 : 192);
    }
}

TEST_P(PageStoreTest, NeedsRoomForPagesAndASnapshot) {
  EXPECT_EQ(cachedAnew(prompt(), 5), 0);
  for (int64_t pages : {5, 6, 20})
    EXPECT_EQ(cachedAnew(prompt(), pages), 192) << pages;
  // One snapshot suffices, but one it needs.
  EXPECT_EQ(cachedAnew(prompt(), 0, 1), 192);
  store.reads = 0;
  EXPECT_EQ(cachedAnew(prompt(), 0, 0), isFixed() ? 0 : 192);
  EXPECT_EQ(store.reads, isFixed() ? 0 : 3);
}

// Each thread reads a page, while the others read theirs.
TEST_P(PageStoreTest, ThreadsReadPagesAtTheSameTime) {
  EXPECT_EQ(cachedAnew(prompt()), 0);
  store.readTime = std::chrono::milliseconds(2);
  // A busy machine may run one thread after another.
  for (int tries = 0; tries < 20 && store.mostReading < pool.size(); ++tries)
    EXPECT_EQ(cachedAnew(prompt()), 192);
  EXPECT_EQ(store.mostReading, pool.size());
}

// A prompt loads for as long as a step takes, and no less than a page.
TEST_P(PageStoreTest, AnswersGoOnWhileAPromptLoads) {
  EXPECT_EQ(cachedAnew(prompt()), 0);
  store.readTime = std::chrono::milliseconds(6);
  Engine engine(manifest, nullptr,
                std::vector{isFixed() ? fixedHashForward : hashForward}, pool,
                {.sequences = 2, .snapshotBytes = 4 * 128});
  Batcher batcher(engine,
                  {.paced = false, .snapshotEvery = 64, .store = &store});
  int64_t other = 0, cached = -1;
  Request answer{.prompt = {.ids = {1, 2, 3}}, .maxTokens = 200};
  answer.onToken = [&](const TokenEvent &) { return ++other > 0; };
  batcher.add(std::make_unique<Job>(std::move(answer), 1, manifest.model));
  while (other == 0)
    batcher.step();
  Request loaded{.prompt = prompt(), .maxTokens = 9};
  const std::vector<int32_t> expected = hashAnswer(loaded);
  std::vector<int32_t> drawn;
  int64_t before = 0;
  loaded.onToken = [&](const TokenEvent &event) {
    if (drawn.empty())
      before = other;
    drawn.push_back(event.id);
    return true;
  };
  loaded.onEnd = [&](const Ending &ending) { cached = ending.cachedTokens; };
  batcher.add(std::make_unique<Job>(std::move(loaded), 2, manifest.model));
  while (!batcher.isIdle())
    batcher.step();
  EXPECT_EQ(drawn, expected);
  EXPECT_EQ(cached, 192);
  // Three threads load its three pages in one step.
  EXPECT_GE(before, pool.size() == 1 ? 3 : 1);
  EXPECT_LT(before, 10);
  EXPECT_EQ(other, 200);
}

INSTANTIATE_TEST_SUITE_P(FixedState, PageStoreTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(1, 3)));
