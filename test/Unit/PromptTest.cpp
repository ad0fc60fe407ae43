//===- PromptTest.cpp - Roots of prompts and their media ------------------===//

#include "HashModel.h"
#include "TempDir.h"
#include "engine/Batcher.h"
#include "engine/RootTable.h"

#include <gtest/gtest.h>

#include <thread>

using namespace qwen;
using namespace qwen::test;

TEST(RootTable, ComparesAllOfARoot) {
  RootTable roots;
  const Root root{.artifact = "m", .adapter = "a", .key = "1", .salt = "s"};
  const RootRef first = roots.intern(root);
  EXPECT_EQ(roots.intern(root), first);
  EXPECT_EQ(*first, root);
  for (std::string Root::*field :
       {&Root::artifact, &Root::adapter, &Root::key, &Root::salt}) {
    Root other = root;
    other.*field += "x";
    EXPECT_NE(roots.intern(other), first);
    // Names do not run into one another.
    other = root;
    std::swap(other.*field,
              other.*(field == &Root::salt ? &Root::key : &Root::salt));
    EXPECT_NE(roots.intern(other), first);
  }
  EXPECT_EQ(roots.size(), 1u);
}

TEST(RootTable, ForgetsARootWithItsLastHolder) {
  RootRef late;
  {
    RootTable roots;
    RootRef first = roots.intern({.salt = "a"});
    const RootRef second = roots.intern({.salt = "b"});
    EXPECT_EQ(roots.size(), 2u);
    RootRef copy = first;
    first.reset();
    EXPECT_EQ(roots.intern({.salt = "a"}), copy);
    copy.reset();
    EXPECT_EQ(roots.size(), 1u);
    late = roots.intern({.salt = "c"});
  }
  EXPECT_EQ(late->salt, "c");
}

TEST(RootTable, ThreadsMayShareIt) {
  RootTable roots;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 5000; ++j) {
        const std::string salt = std::to_string(j % 3);
        const RootRef root = roots.intern({.salt = salt});
        wrong += root->salt != salt || root != roots.intern({.salt = salt});
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(roots.size(), 0u);
}

// Pages, snapshots and requests are few, however many salts clients send.
TEST(RootTable, StaysSmallWithASaltForEachRequest) {
  for (bool fixed : {false, true}) {
    const Manifest manifest = hashManifest(400, 64, fixed);
    ThreadPool pool(1);
    Engine engine(manifest, nullptr,
                  std::vector{fixed ? fixedHashForward : hashForward}, pool,
                  {.kvPages = 6, .snapshotBytes = 3 * 128});
    RootTable roots;
    {
      Batcher batcher(engine, {.paced = false});
      for (RequestId id = 1; id <= 10000; ++id) {
        Request request;
        request.prompt.ids.assign(65, 5);
        request.prompt.root = roots.intern({.salt = std::to_string(id)});
        request.maxTokens = 1;
        int64_t cached = -1;
        request.onEnd = [&](const Ending &ending) {
          cached = ending.cachedTokens;
        };
        batcher.add(
            std::make_unique<Job>(std::move(request), id, manifest.model));
        while (!batcher.isIdle())
          batcher.step();
        ASSERT_EQ(cached, 0);
        ASSERT_LE(roots.size(), 10u);
      }
      EXPECT_GT(roots.size(), 0u);
    }
    EXPECT_EQ(roots.size(), 0u);
  }
}

TEST(Prompt, NeedsMediaInItsPositions) {
  const auto errorOf = [](std::vector<Medium> media) {
    return messageOf([&] {
      Prompt{.ids = std::vector<int32_t>(10), .media = std::move(media)}
          .requireMedia();
    });
  };
  constexpr int64_t kMost = INT64_MAX, kLeast = INT64_MIN;
  EXPECT_EQ(errorOf({{0, 4, 2, {}}, {4, 6, 1, {}}}), "");
  EXPECT_EQ(errorOf({{0, 4, 2, {}}, {3, 1, 1, {}}}),
            "a medium has 1 positions from 3 on, in 1 rows, when 1 or more of "
            "the positions 4 to 9 are needed");
  for (const Medium &medium : std::vector<Medium>{{-1, 2, 1, {}},
                                                  {0, 0, 1, {}},
                                                  {0, 1, 0, {}},
                                                  {9, 2, 1, {}},
                                                  {kMost, 1, 1, {}},
                                                  {1, kMost, 1, {}},
                                                  {kLeast, 1, 1, {}},
                                                  {1, kLeast, 1, {}}})
    EXPECT_NE(errorOf({medium}), "");
  const Manifest manifest = hashManifest(400, 64);
  EXPECT_NE(messageOf([&] {
              const Job job({.prompt = {.ids = {1}, .media = {{1, 1, 1, {}}}}},
                            1, manifest.model);
            }),
            "");
}
