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
// A store may have what was taken. It gets all pages and snapshots of prompts
// with a root. `load` makes kept pages and snapshots of what it has, so that a
// sequence shares them as it shares those that memory has kept.
//
// PageEvents hears of the pages that memory has.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_PREFIXCACHE_H
#define QWEN_RUNTIME_ENGINE_PREFIXCACHE_H

#include "engine/PageEvents.h"
#include "engine/PageStore.h"
#include "engine/Snapshots.h"

#include <array>
#include <functional>

namespace qwen {

/// Calls visit(0) ... visit(items - 1), each once, and returns when all have
/// ended; on several threads, as Engine::forEach does, or on the caller's.
using ForEachFn =
    std::function<void(size_t items, const std::function<void(size_t)> &visit)>;

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
    /// In place of `snapshot`: the store has it, this number of tokens after
    /// these pages.
    std::optional<int64_t> stored = {};
  };

  /// Where `find` looks.
  enum class Where : uint8_t { Memory, MemoryAndStore };

  /// `keep` takes a snapshot every `snapshotEvery` positions. `state`, and
  /// `store` and `events`, which may be null, must outlive the cache. With a
  /// store, `forEach` reads its pages.
  PrefixCache(SequenceState &state, int64_t snapshotEvery,
              PageStore *store = nullptr, PageEvents *events = nullptr,
              ForEachFn forEach = {});
  ~PrefixCache();
  PrefixCache(const PrefixCache &) = delete;
  PrefixCache &operator=(const PrefixCache &) = delete;

  /// What follows `prefix`, without the last token, whose logits are needed.
  Hit find(std::span<const int32_t> tokens, const Prefix &prefix,
           Where where = Where::Memory) const;

  /// Brings what the store has of some tokens after `prefix` into free pages
  /// and snapshots, where `find` finds it. Returns false if `isLate` returned
  /// true, which any thread calls behind pages, before all is there. `loaded`
  /// counts the pages from one call to the next with the same tokens, so that a
  /// page that was taken meanwhile is not loaded again.
  bool load(std::span<const int32_t> tokens, const Prefix &prefix,
            int64_t &loaded, const std::function<bool()> &isLate = {});

  /// Appends the pages of a hit in memory to a sequence, which must have all
  /// pages of `prefix` and no other positions.
  void share(SequenceId sequence, std::span<const int32_t> tokens,
             Prefix &prefix, const Hit &hit);
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
  /// Tells the store that the pages of a sequence were of use, and gives it
  /// those that it has not taken before.
  void leave(SequenceId sequence, std::span<const int32_t> tokens,
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
  /// Notes a kept page, and its name if the store may have it.
  void insert(PageId page, std::span<const int32_t> tokens,
              const Prefix &prefix, const PageName &name);
  /// Makes `page` the last of a prefix.
  void extend(Prefix &prefix, PageId page) const;
  /// Whether the store may have what follows `prefix`.
  bool isStored(const Prefix &prefix) const {
    return store && prefix.identity.root;
  }
  /// The page that follows `prefix` with these tokens, or the snapshot there.
  PageContent contentOf(std::span<const int32_t> tokens,
                        const Prefix &prefix) const;
  /// Its name; zeros if the store cannot have it.
  PageName nameOf(std::span<const int32_t> tokens, const Prefix &prefix) const;
  /// The name, if the store has it.
  std::optional<PageName> findStored(std::span<const int32_t> tokens,
                                     const Prefix &prefix) const;
  /// The number of tokens, the first of `rest`, after which the store has a
  /// snapshot behind `prefix`: the greatest one of more than `least`.
  std::optional<int64_t> findState(std::span<const int32_t> rest,
                                   const Prefix &prefix, int64_t least) const;
  /// Gives the store the kept page of these tokens that follows `prefix`, or
  /// the snapshot there, whose tokens lie in `page`.
  void write(PageId page, std::span<const int32_t> tokens,
             const Prefix &prefix);
  void write(SnapshotId snapshot, PageId page, std::span<const int32_t> tokens,
             const Prefix &prefix);

  /// What a load has before it.
  struct Way;
  /// How the load of pages ended: not begun because it is late, without a page,
  /// or with all.
  enum class Outcome : uint8_t { Late, Lost, Loaded };
  /// Pages that are loaded at the same time, at most. More threads than that
  /// wait for memory.
  static constexpr int64_t kAtOnce = 4;
  /// Makes kept pages of the next stored ones, up to kAtOnce.
  Outcome loadSome(Way &way);
  /// Reads one of these pages into its parts. Any thread may call it.
  Outcome loadOne(const Way &way, size_t index) const;
  /// Names the pages that the system reads before they are asked for.
  void nameAhead(Way &way);
  /// Makes a snapshot of the stored one that follows `prefix` with these
  /// tokens, if that is possible.
  void adoptState(std::span<const int32_t> tokens, const Prefix &prefix,
                  PageId last);
  void remove(PageId page);

  SequenceState &state;
  const int64_t snapshotEvery;
  Snapshots snapshots;
  /// An entry for each page of the pool, and the tokens of its positions.
  std::vector<Entry> entries;
  std::vector<int32_t> tokens;
  std::vector<PageId> buckets;
  PageStore *const store;
  PageEvents *const events;
  const ForEachFn forEach;
  /// What events call this cache.
  const uint64_t number;
  /// What the store reads and writes: a page; a snapshot, and its last page if
  /// that is partial.
  std::vector<uint8_t> pageBytes, snapshotBytes;
  /// The parts of the pages that are loaded at the same time.
  std::vector<std::span<uint8_t>> parts;
  /// The names of a sequence that leaves, or of pages that are loaded.
  std::vector<PageName> names;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_PREFIXCACHE_H
