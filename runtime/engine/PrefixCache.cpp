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
                         PageStore *pageStore, PageEvents *pageEvents,
                         ForEachFn forEachItem)
    : state(sequences), snapshotEvery(every), snapshots(sequences),
      entries(static_cast<size_t>(state.pages())),
      tokens(entries.size() * kPageTokens),
      buckets(std::bit_ceil(entries.size()), kNone), store(pageStore),
      events(pageEvents), forEach(std::move(forEachItem)),
      number(events ? events->addCache() : 0) {
  if (events)
    state.onForget([this](PageId page, uint64_t serial) {
      // The rest of a snapshot has no entry.
      if (entries[static_cast<size_t>(page)].serial == serial)
        events->remove(number, serial);
    });
  if (!store)
    return;
  pageBytes.resize(static_cast<size_t>(state.pageBytes()));
  parts.resize(kAtOnce * state.pageParts());
  names.reserve(entries.size() + 1);
  if (state.fixedBytes())
    snapshotBytes.resize(
        static_cast<size_t>(state.snapshotBytes() + state.pageBytes()));
}

PrefixCache::~PrefixCache() {
  if (events)
    state.onForget({});
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
                         const Prefix &prefix, const PageName &name) {
  Entry &entry = entries[static_cast<size_t>(page)];
  if (entry.serial)
    remove(page);
  const size_t bucket = bucketOf(ids, prefix);
  entry = {state.keep(page), prefix.last,     prefix.identity,
           bucket,           buckets[bucket], name};
  buckets[bucket] = page;
  std::ranges::copy(ids, tokens.begin() + int64_t{page} * kPageTokens);
  if (events)
    events->store(number, {.serial = entry.serial,
                           .parent = entry.parent,
                           .identity = entry.identity,
                           .first = prefix.pages * kPageTokens,
                           .ids = ids});
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
                                   const Prefix &prefix, Where where) const {
  const bool fixed = state.fixedBytes() != 0;
  const bool inStore = where == Where::MemoryAndStore && isStored(prefix);
  const auto beforeLast = ids.first(ids.size() - 1);
  const int64_t known = prefix.pages * kPageTokens;
  Hit hit{.pages = prefix.pages};
  const auto note = [&](int64_t pages, int64_t positions) {
    hit.pages = pages;
    hit.gain = positions - known;
  };
  for (Prefix at = prefix;; ++at.pages) {
    const int64_t border = at.pages * kPageTokens;
    if (const auto found =
            fixed ? snapshots.find(keyOf(beforeLast, at)) : std::nullopt;
        found && state.position(*found) > known) {
      note(at.pages, state.position(*found));
      hit.snapshot = found;
      hit.stored.reset();
    }
    const int64_t best = std::max(known, known + hit.gain);
    if (const auto found =
            fixed && inStore
                ? findState(beforeLast.subspan(static_cast<size_t>(border)), at,
                            best - border)
                : std::nullopt) {
      note(at.pages, border + *found);
      hit.snapshot.reset();
      hit.stored = found;
    }
    if (!fixed)
      note(at.pages, border);
    if (!endsBeforeLast(ids, at.pages))
      return hit;
    const std::span<const int32_t> next = pageTokens(ids, at.pages);
    if (const PageId page = findPage(next, at); page != kNone) {
      at.last = state.serial(page);
      at.name = entries[static_cast<size_t>(page)].name;
    } else if (const std::optional<PageName> name =
                   inStore ? findStored(next, at) : std::nullopt) {
      // All that follows is in the store, too.
      at.last = kNoSerial;
      at.name = *name;
    } else {
      return hit;
    }
  }
}

void PrefixCache::share(SequenceId sequence, std::span<const int32_t> ids,
                        Prefix &prefix, const Hit &hit) {
  while (prefix.pages < hit.pages) {
    const PageId page = findPage(pageTokens(ids, prefix.pages), prefix);
    state.share(sequence, page);
    extend(prefix, page);
  }
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
      insert(page, own, prefix, nameOf(own, prefix));
      write(page, own, prefix);
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
  if (taken && isStored(prefix))
    write(*taken, state.page(sequence, (length - 1) / kPageTokens),
          ids.subspan(static_cast<size_t>(prefix.pages * kPageTokens),
                      static_cast<size_t>(length % kPageTokens)),
          prefix);
}

//===----------------------------------------------------------------------===//
// The store
//===----------------------------------------------------------------------===//

PageContent PrefixCache::contentOf(std::span<const int32_t> ids,
                                   const Prefix &prefix) const {
  const int64_t first = prefix.pages * kPageTokens;
  return {*prefix.identity.root, prefix.name,
          prefix.identity.overlapping(first, first + std::ssize(ids)), ids};
}

PageName PrefixCache::nameOf(std::span<const int32_t> ids,
                             const Prefix &prefix) const {
  return isStored(prefix) ? store->nameOf(contentOf(ids, prefix)) : PageName();
}

std::optional<PageName> PrefixCache::findStored(std::span<const int32_t> ids,
                                                const Prefix &prefix) const {
  const PageName name = store->nameOf(contentOf(ids, prefix));
  return store->has(name) ? std::optional(name) : std::nullopt;
}

std::optional<int64_t> PrefixCache::findState(std::span<const int32_t> rest,
                                              const Prefix &prefix,
                                              int64_t least) const {
  if (state.maxSnapshots() == 0)
    return std::nullopt;
  const uint64_t counts = store->statesBehind(prefix.name);
  const int64_t most = std::min(std::ssize(rest), kPageTokens - 1);
  for (int64_t count = most; counts && count >= 0 && count > least; --count)
    if (counts >> count & 1 &&
        findStored(rest.first(static_cast<size_t>(count)), prefix))
      return count;
  return std::nullopt;
}

void PrefixCache::write(PageId page, std::span<const int32_t> ids,
                        const Prefix &prefix) {
  const PageName &name = entries[static_cast<size_t>(page)].name;
  if (!isStored(prefix) || store->has(name))
    return;
  state.readPage(page, pageBytes);
  store->write(name, contentOf(ids, prefix), pageBytes);
}

void PrefixCache::write(SnapshotId snapshot, PageId page,
                        std::span<const int32_t> ids, const Prefix &prefix) {
  const PageContent content = contentOf(ids, prefix);
  const PageName name = store->nameOf(content);
  if (store->has(name))
    return;
  const auto size = static_cast<size_t>(state.snapshotBytes());
  std::span<uint8_t> bytes = std::span(snapshotBytes).first(size);
  state.readSnapshot(snapshot, bytes);
  if (!ids.empty()) {
    bytes = snapshotBytes;
    state.readPage(page, bytes.subspan(size));
  }
  store->write(name, content, bytes);
}

void PrefixCache::adoptState(std::span<const int32_t> ids, const Prefix &prefix,
                             PageId last) {
  const PageContent content = contentOf(ids, prefix);
  const PageName name = store->nameOf(content);
  const auto size = static_cast<size_t>(state.snapshotBytes());
  const std::span<uint8_t> bytes = ids.empty()
                                       ? std::span(snapshotBytes).first(size)
                                       : std::span(snapshotBytes);
  if (!store->has(name) || !store->read(name, content, {&bytes, 1}))
    return;
  if (!ids.empty()) {
    const auto page = state.adoptKept(bytes.subspan(size), std::ssize(ids));
    if (!page)
      return;
    last = *page;
  }
  snapshots.adopt(
      last, {prefix.identity, prefix.last, prefix.pages * kPageTokens, ids},
      bytes.first(size));
}

/// What the system reads before it is asked for.
static constexpr int64_t kAheadBytes = int64_t{32} << 20;

struct PrefixCache::Way {
  std::span<const int32_t> ids;
  /// The number of pages of the hit.
  const int64_t end;
  const std::function<bool()> &isLate;
  /// What is there, and its last page.
  Prefix at;
  PageId last;
  /// What has a name in `names`, which begin behind the first `at`.
  Prefix named = at;
  const int64_t first = at.pages;
  /// The names from this one on are new to the store.
  size_t newNames = 0;
  /// The pages that are loaded now, and how that ends.
  size_t count = 0;
  std::array<PageId, kAtOnce> pages = {};
  std::array<Outcome, kAtOnce> outcomes = {};

  /// The index of the name of the page behind `at`.
  size_t next() const { return static_cast<size_t>(at.pages - first); }
};

void PrefixCache::nameAhead(Way &way) {
  const int64_t ahead = std::max<int64_t>(
      2 * kAtOnce, kAheadBytes / std::max<int64_t>(1, std::ssize(pageBytes)));
  const int64_t end = std::min(way.end, way.at.pages + ahead);
  way.newNames = names.size();
  for (Prefix &named = way.named; named.pages < end; ++named.pages) {
    named.name = nameOf(pageTokens(way.ids, named.pages), named);
    names.push_back(named.name);
  }
}

PrefixCache::Outcome PrefixCache::loadOne(const Way &way, size_t index) const {
  for (size_t i = way.newNames + index; i < names.size(); i += way.count)
    store->readAhead(names[i]);
  if (index > 0 && way.isLate && way.isLate())
    return Outcome::Late;
  const size_t place = way.next() + index, size = state.pageParts();
  Prefix before = way.at;
  before.pages += static_cast<int64_t>(index);
  if (index > 0)
    before.name = names[place - 1];
  const PageContent content =
      contentOf(pageTokens(way.ids, before.pages), before);
  return store->has(names[place]) &&
                 store->read(names[place], content,
                             PageParts(parts).subspan(index * size, size))
             ? Outcome::Loaded
             : Outcome::Lost;
}

PrefixCache::Outcome PrefixCache::loadSome(Way &way) {
  nameAhead(way);
  way.count = static_cast<size_t>(
      std::min({kAtOnce, way.end - way.at.pages, state.freePages()}));
  const size_t size = state.pageParts();
  for (size_t i = 0; i < way.count; ++i)
    way.pages[i] = state.beginPage(std::span(parts).subspan(i * size, size));
  const auto load = [&](size_t i) {
    try {
      way.outcomes[i] = loadOne(way, i);
    } catch (const std::bad_alloc &) {
      way.outcomes[i] = Outcome::Lost;
    }
  };
  forEach(way.count, std::ref(load));
  // A page is of no use without those before it.
  Outcome outcome = way.count ? Outcome::Loaded : Outcome::Lost;
  size_t kept = 0;
  for (size_t i = 0; i < way.count; ++i) {
    if (outcome == Outcome::Loaded)
      outcome = way.outcomes[i];
    if (state.endPage(way.pages[i], outcome == Outcome::Loaded))
      ++kept;
    else if (outcome == Outcome::Loaded)
      outcome = Outcome::Lost;
  }
  for (size_t i = 0; i < kept; ++i) {
    way.last = way.pages[i];
    insert(way.last, pageTokens(way.ids, way.at.pages), way.at,
           names[way.next()]);
    extend(way.at, way.last);
  }
  return outcome;
}

bool PrefixCache::load(std::span<const int32_t> ids, const Prefix &prefix,
                       int64_t &loaded, const std::function<bool()> &isLate) {
  if (!isStored(prefix))
    return true;
  const Hit hit = find(ids, prefix, Where::MemoryAndStore);
  Prefix at = prefix;
  PageId last = kNone;
  // All that follows a page which memory lacks is in the store.
  for (; at.pages < hit.pages; extend(at, last)) {
    const PageId page = findPage(pageTokens(ids, at.pages), at);
    if (page == kNone)
      break;
    state.renew(page);
    last = page;
  }
  if (at.pages < std::min(loaded, hit.pages))
    return true;
  names.clear();
  Way way = {
      .ids = ids, .end = hit.pages, .isLate = isLate, .at = at, .last = last};
  bool isLoaded = false;
  const auto mustStop = [&] { return isLoaded && isLate && isLate(); };
  while (way.at.pages < hit.pages) {
    if (mustStop())
      return false;
    const Outcome outcome = loadSome(way);
    loaded = std::max(loaded, way.at.pages);
    if (outcome != Outcome::Loaded)
      return outcome == Outcome::Lost;
    isLoaded = true;
  }
  if (hit.stored && mustStop())
    return false;
  // Its page is partial, or the last one.
  if (hit.stored)
    adoptState(ids.subspan(static_cast<size_t>(way.at.pages * kPageTokens),
                           static_cast<size_t>(*hit.stored)),
               way.at, way.last);
  return true;
}

void PrefixCache::leave(SequenceId sequence, std::span<const int32_t> ids,
                        const Prefix &prefix) {
  if (!isStored(prefix))
    return;
  names.clear();
  Prefix at = prefix;
  at.clear();
  while (at.pages < prefix.pages) {
    const PageId page = state.page(sequence, at.pages);
    write(page, pageTokens(ids, at.pages), at);
    extend(at, page);
    names.push_back(at.name);
  }
  store->use(names);
}

int64_t PrefixCache::untilSnapshot(const Prefix &prefix, int64_t length) const {
  if (state.maxSnapshots() == 0)
    return std::numeric_limits<int64_t>::max();
  const int64_t periodic = snapshotEvery - length % snapshotEvery;
  return length < prefix.snapshotAt
             ? std::min(periodic, prefix.snapshotAt - length)
             : periodic;
}
