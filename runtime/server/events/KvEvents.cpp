//===- KvEvents.cpp - Publishes which pages are kept ----------------------===//

#include "server/events/KvEvents.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;
using namespace qwen::server;
using nlohmann::json;

/// vLLM calls the memory of the device that runs the model so, whatever it is.
static constexpr char kMedium[] = "GPU";

static uint64_t randomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

/// What events call a page of a cache. Not every reader takes 64 bits.
static uint64_t pageName(uint64_t seed, uint64_t cache, uint64_t serial) {
  const std::array words = {cache, serial};
  return XXH3_64bits_withSeed(words.data(), sizeof(words), seed) >> 1;
}

KvEvents::KvEvents(std::unique_ptr<EventSockets> eventSockets,
                   const ReplayLimits &replayLimits)
    : sockets(std::move(eventSockets)), limits(replayLimits),
      seed(randomSeed()) {
  sockets->wake();
  thread = startThread("sends events", [this] { serve(); });
}

KvEvents::~KvEvents() {
  {
    const std::lock_guard lock(mutex);
    ending = true;
  }
  sockets->wake();
  thread.join();
}

uint64_t KvEvents::addCache() {
  const std::lock_guard lock(mutex);
  return ++caches;
}

void KvEvents::store(uint64_t cache, const StoredPage &page) noexcept {
  Event event = {.page = pageName(seed, cache, page.serial),
                 .parent = page.parent ? pageName(seed, cache, page.parent) : 0,
                 .isStored = true,
                 .identity = page.identity,
                 .first = page.first,
                 .ids = {}};
  std::ranges::copy(page.ids, event.ids.begin());
  add(event);
}

void KvEvents::remove(uint64_t cache, uint64_t serial) noexcept {
  add({.page = pageName(seed, cache, serial),
       .parent = 0,
       .isStored = false,
       .identity = {},
       .first = 0,
       .ids = {}});
}

void KvEvents::add(const Event &event) noexcept {
  bool mustWake;
  {
    const std::lock_guard lock(mutex);
    mustWake = waiting.empty();
    try {
      waiting.push_back(event);
    } catch (const std::bad_alloc &) {
      waiting.clear();
      isClear = true;
    }
  }
  if (mustWake)
    sockets->wake();
}

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

void KvEvents::serve() {
  while (true) {
    try {
      const std::optional<ReplayRequest> request = sockets->wait();
      const bool isOpen = publishWaiting();
      if (request)
        replay(*request);
      if (!isOpen)
        return;
    } catch (const std::bad_alloc &) {
      const std::lock_guard lock(mutex);
      isClear = true;
    }
  }
}

bool KvEvents::publishWaiting() {
  bool mustClear, isOpen;
  taken.clear();
  {
    const std::lock_guard lock(mutex);
    std::swap(taken, waiting);
    mustClear = std::exchange(isClear, false);
    isOpen = !ending;
  }
  if (mustClear || !taken.empty())
    publish(encode(taken, mustClear));
  return isOpen;
}

void KvEvents::publish(std::string batch) {
  sockets->publish(next, batch);
  sentBytes += batch.size();
  sent.push_back({next++, std::move(batch)});
  while (sent.size() > limits.batches || sentBytes > limits.bytes) {
    sentBytes -= sent.front().bytes.size();
    sent.pop_front();
  }
}

void KvEvents::replay(const ReplayRequest &request) {
  for (const Batch &batch : sent)
    if (batch.number >= request.first)
      sockets->reply(request.client, batch.number, batch.bytes);
  sockets->endReply(request.client);
}

//===----------------------------------------------------------------------===//
// The form of vLLM
//===----------------------------------------------------------------------===//

/// What tells the blocks of a prompt from the blocks of another prompt with the
/// same tokens: null, or a list of texts.
static json blockKeys(const Identity &identity, int64_t first, int64_t count) {
  json keys = json::array();
  // A block without a parent stands for all that follow it.
  if (first == 0 && identity.root) {
    if (!identity.root->salt.empty())
      keys.push_back(identity.root->salt);
    if (!identity.root->key.empty())
      keys.push_back("key:" + identity.root->key);
  }
  for (const Medium &medium : identity.overlapping(first, first + count)) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string digest;
    for (const uint8_t byte : medium.digest) {
      digest += kDigits[byte >> 4];
      digest += kDigits[byte & 15];
    }
    keys.push_back(digest);
  }
  return keys.empty() ? json() : keys;
}

std::string KvEvents::encode(std::span<const Event> events, bool isClear) {
  json list = json::array();
  if (isClear)
    list.push_back({{"type", "AllBlocksCleared"}});
  /// The event before, if it can have more blocks.
  json *open = nullptr;
  uint64_t last = 0;
  for (const Event &event : events) {
    const char *const type = event.isStored ? "BlockStored" : "BlockRemoved";
    const bool isSame = open && open->at("type") == type &&
                        (!event.isStored || event.parent == last);
    last = event.page;
    if (!isSame) {
      open = &list.emplace_back(json{{"type", type},
                                     {"block_hashes", json::array()},
                                     {"medium", kMedium}});
      if (event.isStored) {
        const Root *const root = event.identity.root.get();
        open->update({{"parent_block_hash", nullptr},
                      {"token_ids", json::array()},
                      {"block_size", kPageTokens},
                      {"lora_id", nullptr},
                      {"lora_name", nullptr},
                      {"extra_keys", json::array()}});
        if (event.parent)
          (*open)["parent_block_hash"] = event.parent;
        if (root && !root->adapter.empty())
          (*open)["lora_name"] = root->adapter;
      }
    }
    open->at("block_hashes").push_back(event.page);
    if (event.isStored) {
      for (const int32_t id : event.ids)
        open->at("token_ids").push_back(id);
      open->at("extra_keys")
          .push_back(blockKeys(event.identity, event.first, kPageTokens));
    }
  }
  const double time = std::chrono::duration<double>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  std::string bytes;
  json::to_msgpack(json::array({time, std::move(list), 0}), bytes);
  return bytes;
}
