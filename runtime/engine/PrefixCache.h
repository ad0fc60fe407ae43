//===- PrefixCache.h - Finds kept pages by their tokens ---------*- C++ -*-===//
//
// A full page can serve every sequence that begins with the same tokens. The
// pages themselves belong to SequenceState, which may take a kept page for
// other content at any time when no sequence holds it; the prefix cache then no
// longer finds it.
//
// Pages alone do not bring fixed state back. With fixed caches, a sequence
// shares pages up to a snapshot.
//
// A store may have what was taken. It gets all pages of prompts with a root,
// and the snapshots at their ends.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_PREFIXCACHE_H
#define QWEN_RUNTIME_ENGINE_PREFIXCACHE_H

#include "engine/PageStore.h"
#include "engine/Snapshots.h"

namespace qwen {

/// Allocates nothing after its construction.
class PrefixCache {
public:
  /// The pages at the front of a sequence that the cache has.
  struct Prefix {
    Identity identity = {};
    /// A position at which `keep` takes a snapshot; 0: none.
    int64_t snapshotAt = 0;
    int64_t pages = 0;
    /// Serial number of the last page; 0 if there is none.
    uint64_t last = 0;
    /// With a store: the name of the last page; zeros if there is none.
    PageName name = {};

    /// Removes the pages.
    void clear() {
      pages = 0;
      last = 0;
      name = {};
    }
  };

  /// What the cache has of some tokens after a prefix.
  struct Hit {
    /// Number of pages, with the pages of the prefix.
    int64_t pages;
    /// With fixed caches: the snapshot after these pages.
    std::optional<SnapshotId> snapshot = {};
    /// Number of positions that the prefix lacks.
    int64_t gain = 0;
    /// Whether the store has the snapshot.
    bool isStored = false;
  };

  /// `keep` takes a snapshot every `snapshotEvery` positions. `state` and
  /// `store`, which may be null, must outlive the cache.
  PrefixCache(SequenceState &state, int64_t snapshotEvery,
              PageStore *store = nullptr);

  /// What follows `prefix`, without the last token, whose logits are needed.
  Hit find(std::span<const int32_t> tokens, const Prefix &prefix) const;

  /// Appends the pages of a hit to a sequence, which must have all pages of
  /// `prefix` and no other positions. If the store has lost one, or no page is
  /// free for it, the hit becomes empty.
  void share(SequenceId sequence, std::span<const int32_t> tokens,
             Prefix &prefix, Hit &hit);
  /// Restores the snapshot of a hit after `share`, which may need a page.
  /// Throws Error(NoPage).
  void resume(SequenceId sequence, const Hit &hit);

  /// Keeps the full pages of a sequence of `tokens` that `prefix` lacks, and
  /// takes a snapshot if one is due. If the cache has an equal page, the
  /// sequence uses it and gives up its own.
  void keep(SequenceId sequence, std::span<const int32_t> tokens,
            Prefix &prefix);
  /// Makes a prefix end where its sequence does.
  void cut(SequenceId sequence, Prefix &prefix) const;
  /// Takes a snapshot of a sequence whose full pages are kept. Does nothing
  /// without fixed caches.
  void snapshot(SequenceId sequence, std::span<const int32_t> tokens,
                const Prefix &prefix);
  /// Number of tokens after `length` positions to the next snapshot that is
  /// due. A call must end there.
  int64_t untilSnapshot(const Prefix &prefix, int64_t length) const;

private:
  static constexpr PageId kNone = -1;
  /// No page has this serial number.
  static constexpr uint64_t kNoSerial = UINT64_MAX;

  /// What the cache knows of a page.
  struct Entry {
    /// The serial number of the page when it was kept. So an entry is not found
    /// after the page or its parent was taken.
    uint64_t serial = 0;
    /// Serial number of the page before it.
    uint64_t parent = 0;
    /// A page that was taken keeps it until an entry takes the place.
    Identity identity = {};
    /// The list of entries with the same hash.
    size_t bucket = 0;
    PageId next = kNone;
    PageName name = {};
  };

  std::span<const int32_t> tokensOf(PageId page) const;
  size_t bucketOf(std::span<const int32_t> tokens, const Prefix &prefix) const;
  /// The kept page that follows `prefix` with these tokens, or kNone.
  PageId findPage(std::span<const int32_t> tokens, const Prefix &prefix) const;
  /// The snapshots that follow `prefix`.
  Snapshots::Key keyOf(std::span<const int32_t> tokens,
                       const Prefix &prefix) const;
  void insert(PageId page, std::span<const int32_t> tokens,
              const Prefix &prefix);
  /// Makes `page` the last of a prefix.
  void extend(Prefix &prefix, PageId page) const;
  /// Whether the store may have what follows `prefix`.
  bool isStored(const Prefix &prefix) const {
    return store && prefix.identity.root;
  }
  /// The name of the page that follows `prefix` with these tokens; without
  /// tokens, of the snapshot there.
  PageName nameOf(std::span<const int32_t> tokens, const Prefix &prefix) const;
  /// The same if the store has it.
  std::optional<PageName> findStored(std::span<const int32_t> tokens,
                                     const Prefix &prefix) const;
  /// Gives the store the kept page that follows `prefix`.
  void write(PageId page, const Prefix &prefix);
  /// Appends the page that follows `prefix` with these tokens, from the store.
  /// Returns kNone if that is not possible.
  PageId adopt(SequenceId sequence, std::span<const int32_t> tokens,
               const Prefix &prefix);
  /// The snapshot behind a prefix, from the store.
  std::optional<SnapshotId> adoptSnapshot(SequenceId sequence,
                                          const Prefix &prefix);
  void remove(PageId page);

  SequenceState &state;
  const int64_t snapshotEvery;
  Snapshots snapshots;
  /// An entry for each page of the pool, and the tokens of its positions.
  std::vector<Entry> entries;
  std::vector<int32_t> tokens;
  std::vector<PageId> buckets;
  PageStore *const store;
  /// What the store reads and writes.
  std::vector<uint8_t> pageBytes, snapshotBytes;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_PREFIXCACHE_H
