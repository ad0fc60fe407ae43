//===- PrefixCache.cpp - Finds kept pages by their tokens -----------------===//

#include "engine/PrefixCache.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <bit>
#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

PrefixCache::PrefixCache(SequenceState &sequences, int64_t every)
    : state(sequences), snapshotEvery(every), snapshots(sequences),
      entries(static_cast<size_t>(state.pages())),
      tokens(entries.size() * kPageTokens),
      buckets(std::bit_ceil(entries.size()), kNone) {}

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
  entry = {state.keep(page), prefix.last, prefix.identity, bucket,
           buckets[bucket]};
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
    }
    if (!fixed)
      note(at.pages, at.pages * kPageTokens);
    if (!endsBeforeLast(ids, at.pages))
      return hit;
    const PageId page = findPage(pageTokens(ids, at.pages), at);
    if (page == kNone)
      return hit;
    at.last = state.serial(page);
  }
}

void PrefixCache::share(SequenceId sequence, std::span<const int32_t> ids,
                        Prefix &prefix, const Hit &hit) {
  for (; prefix.pages < hit.pages; ++prefix.pages) {
    const PageId page = findPage(pageTokens(ids, prefix.pages), prefix);
    state.share(sequence, page);
    prefix.last = state.serial(page);
  }
}

void PrefixCache::resume(SequenceId sequence, const Hit &hit) {
  if (hit.snapshot)
    snapshots.restore(sequence, *hit.snapshot);
}

void PrefixCache::keep(SequenceId sequence, std::span<const int32_t> ids,
                       Prefix &prefix) {
  const int64_t length = state.length(sequence);
  for (; (prefix.pages + 1) * kPageTokens <= length; ++prefix.pages) {
    const std::span<const int32_t> own = pageTokens(ids, prefix.pages);
    PageId page = findPage(own, prefix);
    if (page != kNone) {
      state.merge(sequence, prefix.pages, page);
    } else {
      page = state.page(sequence, prefix.pages);
      insert(page, own, prefix);
    }
    prefix.last = state.serial(page);
  }
  if (length == prefix.snapshotAt || length % snapshotEvery == 0)
    snapshot(sequence, ids, prefix);
}

void PrefixCache::snapshot(SequenceId sequence, std::span<const int32_t> ids,
                           const Prefix &prefix) {
  const int64_t length = state.length(sequence);
  // A sequence that failed has lost positions.
  if (state.fixedBytes() && length && length / kPageTokens == prefix.pages)
    snapshots.take(sequence,
                   keyOf(ids.first(static_cast<size_t>(length)), prefix));
}

int64_t PrefixCache::untilSnapshot(const Prefix &prefix, int64_t length) const {
  if (state.maxSnapshots() == 0)
    return std::numeric_limits<int64_t>::max();
  const int64_t periodic = snapshotEvery - length % snapshotEvery;
  return length < prefix.snapshotAt
             ? std::min(periodic, prefix.snapshotAt - length)
             : periodic;
}
