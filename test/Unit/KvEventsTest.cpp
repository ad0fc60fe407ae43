//===- KvEventsTest.cpp - Batches of events of pages ----------------------===//

#include "server/events/KvEvents.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <condition_variable>
#include <numeric>

using namespace qwen;
using namespace qwen::server;
using nlohmann::json;

namespace {
/// What the sockets of a test were given, and what they ask.
struct Wire {
  void ask(uint64_t first) {
    const std::lock_guard lock(mutex);
    requests.push_back({.client = "c", .first = first});
    changed.notify_all();
  }
  /// Waits for the end of an answer, and returns the numbers before it.
  std::vector<uint64_t> replies() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kLong, [this] { return isAnswered; }));
    isAnswered = false;
    return std::exchange(replied, {});
  }
  /// The events of all batches from one on, when they have `count` blocks.
  json events(size_t from, size_t count) {
    json all = json::array();
    const auto isThere = [&] {
      all.clear();
      size_t blocks = 0;
      for (size_t i = from; i < batches.size(); ++i)
        for (const json &event : batches[i].at(1)) {
          blocks += event.value("block_hashes", json::array({0})).size();
          all.push_back(event);
        }
      return blocks >= count;
    };
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kLong, isThere));
    return all;
  }

  static constexpr std::chrono::seconds kLong{60};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<ReplayRequest> requests;
  std::vector<json> batches;
  std::vector<uint64_t> replied;
  bool isAnswered = false, isAwake = false;
};

class FakeSockets final : public EventSockets {
public:
  explicit FakeSockets(Wire &testWire) : wire(testWire) {}

  void publish(uint64_t number, const std::string &batch) override {
    const std::lock_guard lock(wire.mutex);
    EXPECT_EQ(number, wire.batches.size());
    wire.batches.push_back(json::from_msgpack(batch));
    wire.changed.notify_all();
  }
  void reply(const std::string &client, uint64_t number,
             const std::string &batch) override {
    const std::lock_guard lock(wire.mutex);
    EXPECT_EQ(client, "c");
    EXPECT_EQ(json::from_msgpack(batch), wire.batches.at(number));
    wire.replied.push_back(number);
  }
  void endReply(const std::string & /*client*/) override {
    const std::lock_guard lock(wire.mutex);
    wire.isAnswered = true;
    wire.changed.notify_all();
  }
  std::optional<ReplayRequest> wait() override {
    std::unique_lock lock(wire.mutex);
    wire.changed.wait(lock,
                      [&] { return wire.isAwake || !wire.requests.empty(); });
    wire.isAwake = false;
    if (wire.requests.empty())
      return std::nullopt;
    const ReplayRequest request = wire.requests.front();
    wire.requests.pop_front();
    return request;
  }
  void wake() noexcept override {
    const std::lock_guard lock(wire.mutex);
    wire.isAwake = true;
    wire.changed.notify_all();
  }

private:
  Wire &wire;
};

class KvEventsTest : public testing::Test {
protected:
  void open(const ReplayLimits &limits = {}) {
    events =
        std::make_unique<KvEvents>(std::make_unique<FakeSockets>(wire), limits);
    cache = events->addCache();
    // The first batch, which tells of no page.
    EXPECT_EQ(wire.events(0, 1), json::array({{{"type", "AllBlocksCleared"}}}));
  }
  void store(uint64_t serial, uint64_t parent, int64_t page,
             const Identity &identity = {}) const {
    events->store(cache, {.serial = serial,
                          .parent = parent,
                          .identity = identity,
                          .first = page * kPageTokens,
                          .ids = ids});
  }

  Wire wire;
  std::unique_ptr<KvEvents> events;
  uint64_t cache = 0;
  std::vector<int32_t> ids = [] {
    std::vector<int32_t> made(kPageTokens);
    std::iota(made.begin(), made.end(), 151'000);
    return made;
  }();
};
} // namespace

TEST_F(KvEventsTest, HaveTheFormOfVllm) {
  open();
  Prompt prompt{
      .media = {{.position = 70, .count = 9, .rows = 1, .digest = {}}},
      .root = std::make_shared<const Root>(
          Root{.adapter = "a", .key = "0", .salt = "s"})};
  prompt.media[0].digest.fill(0xa5);
  const Identity identity(prompt);
  store(1, 0, 0, identity);
  store(2, 1, 1, identity);
  store(3, 0, 0);
  events->remove(cache, 2);
  events->remove(cache, 1);
  const json all = wire.events(1, 5);
  // Batches may divide what is one event of one batch.
  json blocks = json::array(), parents = json::array(), keys = json::array(),
       gone = json::array();
  for (const json &event : all) {
    EXPECT_EQ(event.at("medium"), "GPU");
    json &list = event.at("type") == "BlockStored" ? blocks : gone;
    list.insert(list.end(), event.at("block_hashes").begin(),
                event.at("block_hashes").end());
    if (&list == &gone)
      continue;
    parents.push_back(event.at("parent_block_hash"));
    keys.insert(keys.end(), event.at("extra_keys").begin(),
                event.at("extra_keys").end());
    EXPECT_EQ(event.at("block_size"), kPageTokens);
    EXPECT_EQ(event.at("lora_id"), nullptr);
    const size_t count = event.at("block_hashes").size();
    EXPECT_EQ(event.at("token_ids").size(), count * kPageTokens);
    EXPECT_EQ(event.at("token_ids").at(63), 151'063);
  }
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(gone, json::array({blocks[1], blocks[0]}));
  EXPECT_EQ(parents.front(), nullptr);
  EXPECT_EQ(parents.back(), nullptr);
  EXPECT_EQ(std::set<json>(blocks.begin(), blocks.end()).size(), 3u);
  EXPECT_TRUE(std::ranges::all_of(blocks, [](const json &block) {
    return block.is_number_unsigned() && block.get<uint64_t>() <= INT64_MAX;
  }));
  std::string digest;
  for (int i = 0; i < 32; ++i)
    digest += "a5";
  EXPECT_EQ(keys, json::array({json::array({"s", "key:0"}),
                               json::array({digest}), nullptr}));
  EXPECT_EQ(all.front().at("lora_name"), "a");
  const std::lock_guard lock(wire.mutex);
  for (const json &batch : wire.batches) {
    EXPECT_EQ(batch.size(), 3u);
    EXPECT_TRUE(batch.at(0).is_number_float());
    EXPECT_EQ(batch.at(2), 0);
  }
}

// A page that follows the one before it in a batch is a block of one event.
TEST_F(KvEventsTest, NameTheParentOfAnotherBatch) {
  open();
  store(1, 0, 0);
  const json first = wire.events(1, 1);
  store(2, 1, 1);
  const json second = wire.events(2, 1);
  EXPECT_EQ(second.back().at("parent_block_hash"),
            first.back().at("block_hashes").back());
}

TEST_F(KvEventsTest, CachesAndProcessesHaveNamesOfTheirOwn) {
  std::set<json> names;
  for (int process = 0; process < 2; ++process) {
    Wire own;
    KvEvents made(std::make_unique<FakeSockets>(own));
    own.events(0, 1);
    for (int i = 0; i < 2; ++i) {
      made.store(
          made.addCache(),
          {.serial = 1, .parent = 0, .identity = {}, .first = 0, .ids = ids});
      names.insert(
          own.events(1, static_cast<size_t>(i) + 1).back().at("block_hashes"));
    }
  }
  EXPECT_EQ(names.size(), 4u);
}

TEST_F(KvEventsTest, AreReplayedFromANumberOn) {
  open({.batches = 4});
  for (uint64_t i = 1; i <= 6; ++i) {
    events->remove(cache, i);
    wire.events(i, 1);
  }
  // Of the batches 0 to 6, the last four.
  wire.ask(0);
  EXPECT_EQ(wire.replies(), (std::vector<uint64_t>{3, 4, 5, 6}));
  wire.ask(5);
  EXPECT_EQ(wire.replies(), (std::vector<uint64_t>{5, 6}));
  wire.ask(7);
  EXPECT_TRUE(wire.replies().empty());
  wire.ask(UINT64_MAX);
  EXPECT_TRUE(wire.replies().empty());
}

TEST_F(KvEventsTest, AReplayHasAllThatCameBeforeIt) {
  open();
  for (uint64_t i = 1; i <= 40; ++i) {
    events->remove(cache, i);
    wire.ask(0);
    const std::vector<uint64_t> replied = wire.replies();
    size_t count = 0;
    for (const uint64_t number : replied)
      for (const json &event : wire.batches.at(number).at(1))
        if (event.at("type") == "BlockRemoved")
          count += event.at("block_hashes").size();
    ASSERT_EQ(count, i);
  }
}

TEST_F(KvEventsTest, BytesAreBounded) {
  open({.bytes = 1000});
  for (uint64_t i = 1; i <= 8; ++i) {
    store(i, 0, 0);
    wire.events(i, 1);
  }
  wire.ask(0);
  // A page has about 400 bytes.
  EXPECT_EQ(wire.replies(), (std::vector<uint64_t>{7, 8}));
}

TEST_F(KvEventsTest, TheEndPublishesWhatWaits) {
  open();
  for (uint64_t i = 1; i <= 1000; ++i)
    events->remove(cache, i);
  events.reset();
  size_t count = 0;
  for (const json &event : wire.events(1, 1000))
    if (event.at("type") == "BlockRemoved")
      count += event.at("block_hashes").size();
  EXPECT_EQ(count, 1000u);
}
