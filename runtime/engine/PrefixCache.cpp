//===- PrefixCache.cpp - Finds kept pages by their tokens -----------------===//

#include "engine/PrefixCache.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <bit>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

PrefixCache::PrefixCache(SequenceState &sequences)
    : state(sequences), entries(static_cast<size_t>(state.pages())),
      tokens(entries.size() * kPageTokens),
      buckets(std::bit_ceil(entries.size()), kNone) {}

std::span<const int32_t> PrefixCache::tokensOf(PageId page) const {
  return std::span(tokens).subspan(static_cast<size_t>(page) * kPageTokens,
                                   kPageTokens);
}

size_t PrefixCache::bucketOf(std::span<const int32_t> ids,
                             const Prefix &prefix) const {
  const uint64_t seed = prefix.last ^ std::rotl(prefix.salt, 32);
  return XXH3_64bits_withSeed(ids.data(), ids.size_bytes(), seed) &
         (buckets.size() - 1);
}

PageId PrefixCache::find(std::span<const int32_t> ids,
                         const Prefix &prefix) const {
  PageId page = buckets[bucketOf(ids, prefix)];
  const auto matches = [&](const Entry &entry) {
    return entry.parent == prefix.last && entry.salt == prefix.salt &&
           state.isKept(page) && std::ranges::equal(tokensOf(page), ids);
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
  entry = {++lastSerial, prefix.last, prefix.salt, bucket, buckets[bucket]};
  buckets[bucket] = page;
  std::ranges::copy(ids, tokens.begin() + int64_t{page} * kPageTokens);
  state.keep(page);
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

int64_t PrefixCache::match(std::span<const int32_t> ids, uint64_t salt) const {
  Prefix prefix = {.salt = salt};
  for (; endsBeforeLast(ids, prefix.pages); ++prefix.pages) {
    const PageId page = find(pageTokens(ids, prefix.pages), prefix);
    if (page == kNone)
      break;
    prefix.last = entries[static_cast<size_t>(page)].serial;
  }
  return prefix.pages * kPageTokens;
}

void PrefixCache::share(SequenceId sequence, std::span<const int32_t> ids,
                        Prefix &prefix) {
  for (; endsBeforeLast(ids, prefix.pages); ++prefix.pages) {
    const PageId page = find(pageTokens(ids, prefix.pages), prefix);
    if (page == kNone)
      return;
    state.share(sequence, page);
    prefix.last = entries[static_cast<size_t>(page)].serial;
  }
}

void PrefixCache::keep(SequenceId sequence, std::span<const int32_t> ids,
                       Prefix &prefix) {
  for (; (prefix.pages + 1) * kPageTokens <= state.length(sequence);
       ++prefix.pages) {
    const std::span<const int32_t> own = pageTokens(ids, prefix.pages);
    PageId page = find(own, prefix);
    if (page != kNone) {
      state.merge(sequence, prefix.pages, page);
    } else {
      page = state.page(sequence, prefix.pages);
      insert(page, own, prefix);
    }
    prefix.last = entries[static_cast<size_t>(page)].serial;
  }
}
