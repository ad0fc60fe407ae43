//===- GroupSchedulersTest.cpp - Which group answers a request ------------===//

#include "engine/GroupSchedulers.h"
#include "HashModel.h"
#include "engine/RootTable.h"

#include <gtest/gtest.h>

#include <latch>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kSequencesOfGroup = 2;

/// Three engines of a hash model, and their schedulers.
struct Groups {
  Groups() {
    for (auto &engine : engines) {
      engine = std::make_unique<Engine>(
          manifest, nullptr, std::vector<ForwardFn *>{hashForward}, pool,
          EngineOptions{.sequences = kSequencesOfGroup});
      pointers.push_back(engine.get());
    }
    schedulers.emplace(pointers, SchedulerOptions{.queue = 9});
  }
  Scheduler &choose(const std::vector<int32_t> &ids, const RootRef &root = {}) {
    return schedulers->choose(ids, root);
  }

  const Manifest manifest = hashManifest(400, 16);
  ThreadPool pool{2};
  std::array<std::unique_ptr<Engine>, 3> engines;
  std::vector<Engine *> pointers;
  std::optional<GroupSchedulers> schedulers;
};

/// Requests that run until they may end.
struct Blocked {
  void submit(Scheduler &scheduler) {
    Request request;
    request.prompt.ids = {1};
    request.maxTokens = 300;
    request.onToken = [this](const TokenEvent &) {
      mayEnd.wait();
      return false;
    };
    request.onEnd = [this](const Ending &) { ++ended; };
    scheduler.submit(std::move(request));
    ++count;
  }
  void end() {
    mayEnd.count_down();
    while (ended < count)
      std::this_thread::yield();
  }

  std::latch mayEnd{1};
  std::atomic<int> ended = 0;
  int count = 0;
};
} // namespace

TEST(KnownPrefixes, HashWholePagesAndAllBeforeThem) {
  const std::vector<int32_t> ids = squareTokens(200);
  const std::vector<uint64_t> hashes = pageHashes(ids, nullptr);
  EXPECT_EQ(hashes.size(), 3u);
  EXPECT_EQ(pageHashes(squareTokens(192), nullptr).size(), 2u);
  EXPECT_TRUE(pageHashes({}, nullptr).empty());
  std::vector<int32_t> other = ids;
  other[0] ^= 1;
  EXPECT_NE(pageHashes(other, nullptr)[2], hashes[2]);
  RootTable roots;
  EXPECT_NE(pageHashes(ids, roots.intern({.salt = "s"}))[0], hashes[0]);
}

TEST(KnownPrefixes, ForgetTheOldest) {
  KnownPrefixes known(4);
  const std::vector<uint64_t> first = {1, 2, 3}, second = {4, 5, 6, 7, 8, 9};
  known.add(first);
  EXPECT_EQ(known.find(first), 3u);
  EXPECT_EQ(known.find(std::vector<uint64_t>{1, 2, 9}), 2u);
  known.add(second);
  EXPECT_EQ(known.find(first), 0u);
  EXPECT_EQ(known.find(std::vector<uint64_t>{8, 9}), 2u);
}

TEST(GroupSchedulers, ThePromptsOfOneBeginningStayTogether) {
  Groups groups;
  std::vector<int32_t> ids = squareTokens(200);
  Scheduler &first = groups.choose(ids);
  Blocked others;
  others.submit(first);
  // The first group has more to do, and a free sequence.
  ids.resize(150);
  EXPECT_EQ(&groups.choose(ids), &first);
  EXPECT_NE(&groups.choose(squareTokens(200, 1)), &first);
  RootTable roots;
  EXPECT_NE(&groups.choose(ids, roots.intern({.key = "1"})), &first);
  // Without a free sequence it must not wait.
  others.submit(first);
  EXPECT_NE(&groups.choose(ids), &first);
  others.end();
}

TEST(GroupSchedulers, RequestsGoWhereTheLeastIsToDo) {
  Groups groups;
  Blocked blocked;
  std::map<Scheduler *, int> counts;
  // As many as run in all, and as many as wait.
  for (int i = 0; i < 3 * kSequencesOfGroup + 9; ++i) {
    Scheduler &chosen = groups.choose({1, 2, 3});
    ++counts[&chosen];
    blocked.submit(chosen);
  }
  EXPECT_EQ(counts.size(), 3u);
  for (const auto &[scheduler, count] : counts)
    EXPECT_EQ(count, kSequencesOfGroup + 3);
  EXPECT_THROW(blocked.submit(groups.choose({1})), Error);
  blocked.end();
  while (groups.schedulers->counts().running > 0)
    std::this_thread::yield();
  EXPECT_EQ(groups.schedulers->pages(), 3 * groups.engines[0]->state().pages());
  EXPECT_EQ(groups.schedulers->counts().freePages, groups.schedulers->pages());
  EXPECT_EQ(groups.schedulers->counts().sums.drawnTokens, blocked.count);
}
