//===- PrefixCache.h - Finds kept pages by their tokens ---------*- C++ -*-===//
//
// A full page can serve every sequence that begins with the same tokens. The
// pages themselves belong to SequenceState, which may take a kept page for
// other content at any time when no sequence holds it; the prefix cache then no
// longer finds it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_PREFIXCACHE_H
#define QWEN_RUNTIME_ENGINE_PREFIXCACHE_H

#include "engine/SequenceState.h"

#include <span>

namespace qwen {

/// Allocates nothing after its construction.
class PrefixCache {
public:
  /// The pages at the front of a sequence that the cache has.
  struct Prefix {
    /// Only sequences with the same salt share pages.
    uint64_t salt = 0;
    int64_t pages = 0;
    /// Serial number of the last page; 0 if there is none.
    uint64_t last = 0;
  };

  /// `state` must outlive the cache.
  explicit PrefixCache(SequenceState &state);

  /// Number of positions of `tokens` that the cache has, without the last
  /// token.
  int64_t match(std::span<const int32_t> tokens, uint64_t salt) const;

  /// Appends the pages that follow `prefix` to a sequence, which must have all
  /// pages of `prefix` and no other positions. Leaves out the page with the
  /// last token, whose logits are needed.
  void share(SequenceId sequence, std::span<const int32_t> tokens,
             Prefix &prefix);

  /// Keeps the full pages of a sequence of `tokens` that `prefix` lacks. If the
  /// cache has an equal page, the sequence uses it and gives up its own.
  void keep(SequenceId sequence, std::span<const int32_t> tokens,
            Prefix &prefix);

private:
  static constexpr PageId kNone = -1;

  /// What the cache knows of a page.
  struct Entry {
    /// Never used twice, so that an entry whose parent was taken is not found.
    uint64_t serial = 0;
    /// Serial number of the page before it, and the salt.
    uint64_t parent = 0, salt = 0;
    /// The list of entries with the same hash.
    size_t bucket = 0;
    PageId next = kNone;
  };

  std::span<const int32_t> tokensOf(PageId page) const;
  size_t bucketOf(std::span<const int32_t> tokens, const Prefix &prefix) const;
  /// The kept page that follows `prefix` with these tokens, or kNone.
  PageId find(std::span<const int32_t> tokens, const Prefix &prefix) const;
  void insert(PageId page, std::span<const int32_t> tokens,
              const Prefix &prefix);
  void remove(PageId page);

  SequenceState &state;
  /// An entry for each page of the pool, and the tokens of its positions.
  std::vector<Entry> entries;
  std::vector<int32_t> tokens;
  std::vector<PageId> buckets;
  uint64_t lastSerial = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_PREFIXCACHE_H
