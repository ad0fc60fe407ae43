//===- MemoryStore.h - A store of pages in memory ---------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_MEMORYSTORE_H
#define QWEN_TEST_UNIT_MEMORYSTORE_H

#include "engine/PageStore.h"

#include "qwen/ABI/Blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

namespace qwen::test {

/// Numbers contents, so that different ones have different names, and keeps
/// what is used.
class MemoryStore final : public PageStore {
public:
  PageName nameOf(const PageContent &content) const override {
    Key key{content.root,
            content.before,
            {content.ids.begin(), content.ids.end()},
            {}};
    for (const Medium &medium : content.media)
      key.media.emplace_back(medium.position, medium.count, medium.rows,
                             medium.digest);
    const auto number = static_cast<uint32_t>(
        names.try_emplace(std::move(key), names.size() + 1).first->second);
    PageName name = {};
    for (size_t i = 0; i < sizeof(number); ++i)
      name[i] = static_cast<uint8_t>(number >> 8 * i);
    return name;
  }
  bool has(const PageName &name) const override {
    const std::lock_guard lock(mutex);
    return entries.contains(name);
  }
  uint64_t statesBehind(const PageName &before) const override {
    const auto found = states.find(before);
    return found == states.end() ? 0 : found->second;
  }
  bool read(const PageName &name, const PageContent &content,
            PageParts parts) override {
    ++reading;
    std::this_thread::sleep_for(readTime);
    const std::lock_guard lock(mutex);
    mostReading = std::max(mostReading, reading--);
    EXPECT_EQ(nameOf(content), name);
    if (++reads == lostRead) {
      entries.erase(name);
      return false;
    }
    const std::vector<uint8_t> &kept = entries.at(name);
    EXPECT_EQ(kept.size(), bytesOf(parts));
    copyToParts(kept, parts);
    return true;
  }
  void write(const PageName &name, const PageContent &content,
             std::span<const uint8_t> bytes) override {
    EXPECT_EQ(nameOf(content), name);
    EXPECT_FALSE(has(name));
    entries[name].assign(bytes.begin(), bytes.end());
    if (std::ssize(content.ids) < kPageTokens)
      states[content.before] |= uint64_t{1} << content.ids.size();
  }
  void use(std::span<const PageName> pages) override {
    used.assign(pages.begin(), pages.end());
  }

  std::map<PageName, std::vector<uint8_t>> entries;
  std::map<PageName, uint64_t> states;
  /// The names of the last sequence that was told.
  std::vector<PageName> used;
  int64_t reads = 0;
  /// The most calls of `read` at the same time.
  int mostReading = 0;
  std::chrono::milliseconds readTime{0};
  /// The number of the read that finds nothing; 0: none.
  int64_t lostRead = 0;

private:
  struct Key {
    Root root;
    PageName before;
    std::vector<int32_t> ids;
    std::vector<std::tuple<int64_t, int64_t, int64_t, std::array<uint8_t, 32>>>
        media;
    auto operator<=>(const Key &) const = default;
  };
  mutable std::map<Key, size_t> names;
  /// Guards what `has` and `read` use.
  mutable std::mutex mutex;
  std::atomic<int> reading = 0;
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_MEMORYSTORE_H
