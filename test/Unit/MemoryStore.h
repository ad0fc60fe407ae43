//===- MemoryStore.h - A store of pages in memory ---------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_MEMORYSTORE_H
#define QWEN_TEST_UNIT_MEMORYSTORE_H

#include "engine/PageStore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace qwen::test {

/// Numbers contents, so that different ones have different names.
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
    return entries.contains(name);
  }
  bool read(const PageName &name, std::span<uint8_t> bytes) override {
    if (++reads == lostRead) {
      entries.erase(name);
      return false;
    }
    std::ranges::copy(entries.at(name), bytes.begin());
    return true;
  }
  void write(const PageName &name, std::span<const uint8_t> bytes) override {
    EXPECT_FALSE(has(name));
    entries[name].assign(bytes.begin(), bytes.end());
  }

  std::map<PageName, std::vector<uint8_t>> entries;
  int64_t reads = 0;
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
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_MEMORYSTORE_H
