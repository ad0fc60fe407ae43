//===- PrefixCache.cpp - Finds kept pages by their tokens -----------------===//

#include "engine/PrefixCache.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

PrefixCache::PrefixCache(SequenceState &sequences, int64_t every,
                         PageStore *pageStore)
    : state(sequences), snapshotEvery(every), snapshots(sequences),
      entries(static_cast<size_t>(state.pages())),
      tokens(entries.size() * kPageTokens),
      buckets(std::bit_ceil(entries.size()), kNone), store(pageStore) {
  if (!store)
    return;
  pageBytes.resize(static_cast<size_t>(state.pageBytes()));
  if (state.fixedBytes())
    snapshotBytes.resize(static_cast<size_t>(state.snapshotBytes()));
}

std::span<const int32_t> PrefixCache::tokensOf(PageId page) const {
  return std::span(tokens).subspan(static_cast<size_t>(page) * kPageTokens,
                                   kPageTokens);
}

size_t PrefixCache::bucketOf(std::span<const int32_t> ids,
                             const Prefix &prefix) const {
  const int64_t first = prefix.pages * kPageTokens;
  const uint64_t seed =
      prefix.last ^
      std::rotl(prefix.identity.hash(first, first + kPageTokens), 32);
  return XXH3_64bits_withSeed(ids.data(), ids.size_bytes(), seed) &
         (buckets.size() - 1);
}

PageId PrefixCache::findPage(std::span<const int32_t> ids,
                             const Prefix &prefix) const {
  const int64_t first = prefix.pages * kPageTokens;
  PageId page = buckets[bucketOf(ids, prefix)];
  const auto matches = [&](const Entry &entry) {
    return entry.parent == prefix.last && entry.serial == state.serial(page) &&
           entry.identity.matches(prefix.identity, first,
                                  first + kPageTokens) &&
           std::ranges::equal(tokensOf(page), ids);
  };
  while (page != kNone && !matches(entries[static_cast<size_t>(page)]))
    page = entries[static_cast<size_t>(page)].next;
  return page;
}

void PrefixCache::remove(PageId page) {
  const Entry &entry = entries[static_cast<size_t>(page)];
  PageId *link = &buckets[entry.bucket];
  while (*link != page)
    link = &entries[static_cast<size_t>(*link)].next;
  *link = entry.next;
}

void PrefixCache::insert(PageId page, std::span<const int32_t> ids,
                         const Prefix &prefix) {
  Entry &entry = entries[static_cast<size_t>(page)];
  if (entry.serial)
    remove(page);
  const size_t bucket = bucketOf(ids, prefix);
  const PageName name = isStored(prefix) ? nameOf(ids, prefix) : PageName();
  entry = {state.keep(page), prefix.last,     prefix.identity,
           bucket,           buckets[bucket], name};
  buckets[bucket] = page;
  std::ranges::copy(ids, tokens.begin() + int64_t{page} * kPageTokens);
}

/// The tokens of page `index` of a sequence.
static std::span<const int32_t> pageTokens(std::span<const int32_t> tokens,
                                           int64_t index) {
  return tokens.subspan(static_cast<size_t>(index * kPageTokens), kPageTokens);
}

/// Whether page `index` ends before the last token.
static bool endsBeforeLast(std::span<const int32_t> tokens, int64_t index) {
  return (index + 1) * kPageTokens < std::ssize(tokens);
}

Snapshots::Key PrefixCache::keyOf(std::span<const int32_t> ids,
                                  const Prefix &prefix) const {
  const int64_t first = prefix.pages * kPageTokens;
  return {prefix.identity, prefix.last, first,
          ids.subspan(static_cast<size_t>(first))};
}

PrefixCache::Hit PrefixCache::find(std::span<const int32_t> ids,
                                   const Prefix &prefix) const {
  const bool fixed = state.fixedBytes() != 0;
  const auto beforeLast = ids.first(ids.size() - 1);
  Hit hit{.pages = prefix.pages};
  const auto note = [&](int64_t pages, int64_t positions) {
    hit.pages = pages;
    hit.gain = positions - prefix.pages * kPageTokens;
  };
  for (Prefix at = prefix;; ++at.pages) {
    if (const auto found =
            fixed ? snapshots.find(keyOf(beforeLast, at)) : std::nullopt;
        found && state.position(*found) > prefix.pages * kPageTokens) {
      note(at.pages, state.position(*found));
      hit.snapshot = found;
      hit.isStored = false;
    } else if (fixed && state.maxSnapshots() > 0 && at.pages > prefix.pages &&
               findStored({}, at)) {
      note(at.pages, at.pages * kPageTokens);
      hit.snapshot.reset();
      hit.isStored = true;
    }
    if (!fixed)
      note(at.pages, at.pages * kPageTokens);
    if (!endsBeforeLast(ids, at.pages))
      return hit;
    const std::span<const int32_t> next = pageTokens(ids, at.pages);
    if (const PageId page = findPage(next, at); page != kNone) {
      at.last = state.serial(page);
      at.name = entries[static_cast<size_t>(page)].name;
    } else if (const std::optional<PageName> name = findStored(next, at)) {
      // All that follows is in the store, too.
      at.last = kNoSerial;
      at.name = *name;
    } else {
      return hit;
    }
  }
}

void PrefixCache::share(SequenceId sequence, std::span<const int32_t> ids,
                        Prefix &prefix, Hit &hit) {
  const int64_t before = prefix.pages * kPageTokens;
  const auto undo = [&] {
    state.truncate(sequence, before);
    cut(sequence, prefix);
    hit = {.pages = prefix.pages};
  };
  while (prefix.pages < hit.pages) {
    const std::span<const int32_t> next = pageTokens(ids, prefix.pages);
    PageId page = findPage(next, prefix);
    if (page != kNone)
      state.share(sequence, page);
    else
      page = adopt(sequence, next, prefix);
    if (page == kNone)
      return undo();
    extend(prefix, page);
  }
  if (!std::exchange(hit.isStored, false))
    return;
  hit.snapshot = adoptSnapshot(sequence, prefix);
  if (!hit.snapshot)
    undo();
}

void PrefixCache::extend(Prefix &prefix, PageId page) const {
  ++prefix.pages;
  prefix.last = state.serial(page);
  prefix.name = entries[static_cast<size_t>(page)].name;
}

void PrefixCache::cut(SequenceId sequence, Prefix &prefix) const {
  const int64_t pages =
      std::min(prefix.pages, state.length(sequence) / kPageTokens);
  prefix.clear();
  if (pages == 0)
    return;
  prefix.pages = pages - 1;
  extend(prefix, state.page(sequence, pages - 1));
}

void PrefixCache::resume(SequenceId sequence, const Hit &hit) {
  if (hit.snapshot)
    snapshots.restore(sequence, *hit.snapshot);
}

void PrefixCache::keep(SequenceId sequence, std::span<const int32_t> ids,
                       Prefix &prefix) {
  const int64_t length = state.length(sequence);
  while ((prefix.pages + 1) * kPageTokens <= length) {
    const std::span<const int32_t> own = pageTokens(ids, prefix.pages);
    PageId page = findPage(own, prefix);
    if (page != kNone) {
      state.merge(sequence, prefix.pages, page);
    } else {
      page = state.page(sequence, prefix.pages);
      insert(page, own, prefix);
      write(page, prefix);
    }
    extend(prefix, page);
  }
  if (length == prefix.snapshotAt || length % snapshotEvery == 0)
    snapshot(sequence, ids, prefix);
}

void PrefixCache::snapshot(SequenceId sequence, std::span<const int32_t> ids,
                           const Prefix &prefix) {
  const int64_t length = state.length(sequence);
  // A sequence that failed has lost positions.
  if (!state.fixedBytes() || !length || length / kPageTokens != prefix.pages)
    return;
  const std::optional<SnapshotId> taken = snapshots.take(
      sequence, keyOf(ids.first(static_cast<size_t>(length)), prefix));
  if (!taken || length % kPageTokens || !isStored(prefix))
    return;
  if (const PageName name = nameOf({}, prefix); !store->has(name)) {
    state.readSnapshot(*taken, snapshotBytes);
    store->write(name, snapshotBytes);
  }
}

//===----------------------------------------------------------------------===//
// The store
//===----------------------------------------------------------------------===//

PageName PrefixCache::nameOf(std::span<const int32_t> ids,
                             const Prefix &prefix) const {
  const int64_t first = prefix.pages * kPageTokens;
  return store->nameOf(
      {*prefix.identity.root, prefix.name,
       prefix.identity.overlapping(first, first + std::ssize(ids)), ids});
}

std::optional<PageName> PrefixCache::findStored(std::span<const int32_t> ids,
                                                const Prefix &prefix) const {
  if (!isStored(prefix))
    return std::nullopt;
  const PageName name = nameOf(ids, prefix);
  return store->has(name) ? std::optional(name) : std::nullopt;
}

void PrefixCache::write(PageId page, const Prefix &prefix) {
  const PageName &name = entries[static_cast<size_t>(page)].name;
  if (!isStored(prefix) || store->has(name))
    return;
  state.readPage(page, pageBytes);
  store->write(name, pageBytes);
}

PageId PrefixCache::adopt(SequenceId sequence, std::span<const int32_t> ids,
                          const Prefix &prefix) {
  const std::optional<PageName> name = findStored(ids, prefix);
  if (!name || !store->read(*name, pageBytes))
    return kNone;
  const std::optional<PageId> page = state.adoptPage(sequence, pageBytes);
  if (!page)
    return kNone;
  insert(*page, ids, prefix);
  return *page;
}

std::optional<SnapshotId> PrefixCache::adoptSnapshot(SequenceId sequence,
                                                     const Prefix &prefix) {
  const std::optional<PageName> name = findStored({}, prefix);
  if (!name || !store->read(*name, snapshotBytes))
    return std::nullopt;
  return snapshots.adopt(
      sequence, {prefix.identity, prefix.last, prefix.pages * kPageTokens, {}},
      snapshotBytes);
}

int64_t PrefixCache::untilSnapshot(const Prefix &prefix, int64_t length) const {
  if (state.maxSnapshots() == 0)
    return std::numeric_limits<int64_t>::max();
  const int64_t periodic = snapshotEvery - length % snapshotEvery;
  return length < prefix.snapshotAt
             ? std::min(periodic, prefix.snapshotAt - length)
             : periodic;
}
