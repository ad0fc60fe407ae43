//===- SequenceBytes.cpp - Bytes of pages and snapshots -------------------===//

#include "engine/SequenceState.h"

#include <algorithm>

using namespace qwen;

/// The first `size` of the bytes that are left.
template <typename ByteType>
static std::span<ByteType> takeFirst(std::span<ByteType> &left, size_t size) {
  const std::span<ByteType> first = left.first(size);
  left = left.subspan(size);
  return first;
}

static void put(std::span<uint8_t> &left, std::span<const uint8_t> part) {
  std::ranges::copy(part, takeFirst(left, part.size()).begin());
}

static void get(std::span<const uint8_t> &left, std::span<uint8_t> part) {
  std::ranges::copy(takeFirst(left, part.size()), part.begin());
}

int64_t SequenceState::pageBytes() const {
  int64_t bytes = std::ssize(groups);
  for (const Cache &cache : memory)
    if (cache.isCopied())
      bytes += cache.stride;
  return bytes;
}

void SequenceState::readPage(PageId page, std::span<uint8_t> to) const {
  put(to, groupsAt(slots, page));
  for (const Cache &cache : memory)
    if (cache.isCopied())
      put(to, bytesIn(cache, page));
}

size_t SequenceState::pageParts() const {
  return 1 + static_cast<size_t>(std::ranges::count_if(
                 memory, [](const Cache &cache) { return cache.isCopied(); }));
}

PageId SequenceState::beginPage(std::span<std::span<uint8_t>> parts) {
  const PageId page = takePage();
  size_t part = 0;
  parts[part++] = groupsAt(slots, page);
  for (const Cache &cache : memory)
    if (cache.isCopied())
      parts[part++] = bytesIn(cache, page);
  return page;
}

bool SequenceState::endPage(PageId page, bool isFilled) {
  const bool isKept = isFilled && haveRun(groupsAt(slots, page), kPageTokens);
  if (isKept)
    keep(page);
  releasePage(page);
  return isKept;
}

bool SequenceState::haveRun(std::span<const uint8_t> own,
                            int64_t positions) const {
  const auto isRun = [&](size_t group) { return own[group] >= positions; };
  const auto fits = [](uint8_t slots) { return slots <= kPageTokens; };
  return std::ranges::all_of(groupsOf[0], isRun) &&
         std::ranges::all_of(own, fits);
}

std::optional<PageId> SequenceState::fillPage(std::span<const uint8_t> from,
                                              int64_t positions) {
  const std::span<const uint8_t> own = takeFirst(from, groups.size());
  if (freeCount == 0 || !haveRun(own, positions))
    return std::nullopt;
  const PageId page = takePage();
  std::ranges::copy(own, groupsAt(slots, page).begin());
  for (const Cache &cache : memory)
    if (cache.isCopied())
      get(from, bytesIn(cache, page));
  return page;
}

std::optional<PageId> SequenceState::adoptPage(SequenceId sequence,
                                               std::span<const uint8_t> from) {
  const std::optional<PageId> page = fillPage(from, kPageTokens);
  if (page)
    append(sequence, *page, kPageTokens);
  return page;
}

std::optional<PageId> SequenceState::adoptKept(std::span<const uint8_t> from,
                                               int64_t positions) {
  const std::optional<PageId> page = fillPage(from, positions);
  if (!page)
    return std::nullopt;
  keep(*page);
  releasePage(*page);
  return page;
}

int64_t SequenceState::snapshotBytes() const {
  auto bytes = static_cast<int64_t>(groups.size() * sizeof(int64_t));
  for (const CacheGroup &group : groups)
    for (const CacheGroup::FixedLayer &layer : group.fixed)
      bytes += layer.bytes;
  return bytes;
}

void SequenceState::readSnapshot(SnapshotId snapshot,
                                 std::span<uint8_t> to) const {
  entryOf(snapshot);
  for (const int64_t known : groupsAt(snapshotLengths, snapshot))
    put(to, {reinterpret_cast<const uint8_t *>(&known), sizeof(known)});
  for (const CacheGroup &group : groups)
    for (const CacheGroup::FixedLayer &layer : group.fixed)
      put(to, bytesAt(layer, rowOf(snapshot)));
}

std::optional<SnapshotId>
SequenceState::adoptSnapshot(int64_t position, std::span<const uint8_t> from) {
  const auto free = std::ranges::find(snapshots, false, &Snapshot::taken);
  if (free == snapshots.end())
    return std::nullopt;
  const auto id = static_cast<SnapshotId>(free - snapshots.begin());
  for (size_t i = 0; i < groups.size(); ++i) {
    int64_t &known = snapshotLength(id, i);
    get(from, {reinterpret_cast<uint8_t *>(&known), sizeof(known)});
    const bool isForward = std::ranges::count(groupsOf[0], i) > 0;
    if (known < (isForward ? position : 0) || known > position)
      return std::nullopt;
  }
  for (const CacheGroup &group : groups)
    for (const CacheGroup::FixedLayer &layer : group.fixed)
      get(from, bytesAt(layer, rowOf(id)));
  *free = {true, kNone, position};
  return id;
}
