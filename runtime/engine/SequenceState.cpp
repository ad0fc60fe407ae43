//===- SequenceState.cpp - What the engine keeps of sequences -------------===//

#include "engine/SequenceState.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

using namespace qwen;

/// Memory for `count` pages or rows of a cache. In a page, the part of a KV
/// head is only a few KiB, and its part of the next page is far away, so huge
/// memory pages help.
static Mapping cacheMemory(const CacheInfo &cache, int64_t count) {
  int64_t bytes;
  if (__builtin_mul_overflow(count, cache.stride(), &bytes))
    throw Error("a " + cache.name + " cache of " + std::to_string(count) +
                (cache.kind == CacheKind::Paged ? " pages" : " sequences") +
                " is not possible");
  Mapping memory = Mapping::memory(
      static_cast<size_t>(bytes),
      cache.kind == CacheKind::Paged ? "the KV cache" : "the fixed state");
  memory.useHugePages();
  return memory;
}

SequenceState::SequenceState(std::span<const CacheInfo> caches,
                             const StateLimits &limits)
    : context(limits.context), whyNotMore(limits.whyNotMore),
      bytesOfFixed(bytesOf(caches, CacheKind::Fixed)),
      stride(ceilDiv(limits.context, kPageTokens)) {
  if (limits.pages < 1 || limits.pages > INT32_MAX)
    throw Error("a KV cache of " + std::to_string(limits.pages) +
                " pages is not possible");
  if (limits.sequences < 1)
    throw Error("a KV cache needs at least one sequence");
  if (limits.snapshots < 0)
    throw Error("the maximum number of snapshots is " +
                std::to_string(limits.snapshots) + " when 0 or more is needed");
  for (const CacheInfo &cache : caches) {
    const int64_t count = cache.kind == CacheKind::Paged
                              ? limits.pages
                              : int64_t{limits.sequences} + limits.snapshots;
    memory.push_back({cache.kind, cache.stride(), cacheMemory(cache, count)});
    bases.push_back(memory.back().memory.data());
  }
  tables.assign(static_cast<size_t>(limits.sequences * stride), 0);
  sequences.resize(static_cast<size_t>(limits.sequences));
  snapshots.resize(static_cast<size_t>(limits.snapshots));
  const auto count = static_cast<size_t>(limits.pages);
  references.assign(count, 0);
  serials.assign(count, 0);
  nextFree.resize(count + 1);
  previousFree.resize(count + 1);
  const auto head = static_cast<PageId>(limits.pages);
  nextFree[count] = previousFree[count] = head;
  for (PageId page = 0; page < head; ++page)
    linkBefore(page, head);
}

void SequenceState::checkOpen(SequenceId sequence) const {
  if (!isOpen(sequence))
    throw Error("sequence " + std::to_string(sequence) + " is not open");
}

void SequenceState::checkLength(SequenceId sequence, int64_t wanted) const {
  if (wanted < 0 || wanted > length(sequence))
    throw Error("sequence " + std::to_string(sequence) + " has " +
                std::to_string(length(sequence)) +
                " positions and cannot keep " + std::to_string(wanted));
}

bool SequenceState::isOpen(SequenceId sequence) const {
  return sequence >= 0 && static_cast<size_t>(sequence) < sequences.size() &&
         sequences[static_cast<size_t>(sequence)].open;
}

int64_t SequenceState::length(SequenceId sequence) const {
  checkOpen(sequence);
  return sequences[static_cast<size_t>(sequence)].length;
}

std::string SequenceState::describeFull() const {
  return "all " + std::to_string(pages()) +
         " pages of the KV cache are in use" + whyNotMore;
}

void SequenceState::unlink(PageId page) {
  const PageId next = nextFree[page], previous = previousFree[page];
  nextFree[previous] = next;
  previousFree[next] = previous;
  --freeCount;
}

void SequenceState::linkBefore(PageId page, PageId next) {
  const PageId previous = previousFree[next];
  nextFree[page] = next;
  previousFree[page] = previous;
  nextFree[previous] = previousFree[next] = page;
  ++freeCount;
}

PageId SequenceState::takePage() {
  const PageId page = nextFree.back();
  if (page == pages())
    throw Error(describeFull(), ErrorKind::NoPage);
  forgetPage(page);
  holdPage(page);
  return page;
}

void SequenceState::forgetPage(PageId page) {
  if (std::exchange(serials[static_cast<size_t>(page)], 0))
    --keptCount;
}

void SequenceState::holdPage(PageId page) {
  if (references[page]++ == 0)
    unlink(page);
}

void SequenceState::releasePage(PageId page) {
  if (--references[page] == 0)
    linkBefore(page,
               serial(page) ? static_cast<PageId>(pages()) : nextFree.back());
}

PageId SequenceState::copyPage(PageId page) {
  const PageId copy = takePage();
  for (const Cache &cache : memory)
    if (cache.kind == CacheKind::Paged)
      memcpy(cache.memory.data() + copy * cache.stride,
             cache.memory.data() + page * cache.stride,
             static_cast<size_t>(cache.stride));
  return copy;
}

SequenceId SequenceState::open() {
  for (size_t i = 0; i < sequences.size(); ++i)
    if (!sequences[i].open) {
      sequences[i] = {true, 0};
      return static_cast<SequenceId>(i);
    }
  throw Error("all " + std::to_string(sequences.size()) + " sequences are open",
              ErrorKind::NoSequence);
}

SequenceId SequenceState::branch(SequenceId parent, int64_t positions) {
  checkLength(parent, positions);
  const int64_t row = rowAt(parent, positions);
  const int64_t full = positions / kPageTokens;
  const SequenceId child = open();
  PageId *to = table(child);
  const PageId *from = table(parent);
  if (positions % kPageTokens) {
    try {
      to[full] = copyPage(from[full]);
    } catch (...) {
      sequences[child].open = false;
      throw;
    }
  }
  for (int64_t i = 0; i < full; ++i) {
    to[i] = from[i];
    holdPage(to[i]);
  }
  sequences[child].length = positions;
  copyRow(row, child);
  return child;
}

void SequenceState::close(SequenceId sequence) {
  truncate(sequence, 0);
  sequences[sequence].open = false;
  for (Snapshot &snapshot : snapshots)
    if (snapshot.sequence == sequence)
      snapshot.sequence = kNone;
}

void SequenceState::truncate(SequenceId sequence, int64_t newLength) {
  checkLength(sequence, newLength);
  const int64_t row = rowAt(sequence, newLength);
  removePositions(sequence, newLength);
  copyRow(row, sequence);
}

void SequenceState::removePositions(SequenceId sequence, int64_t newLength) {
  Sequence &entry = sequences[sequence];
  PageId *pagesOf = table(sequence);
  const int64_t last = newLength / kPageTokens;
  // This sequence will write to the rest of the page, which others still read.
  if (newLength % kPageTokens && newLength < entry.length) {
    PageId &page = pagesOf[last];
    if (references[page] > 1) {
      const PageId copy = copyPage(page);
      releasePage(page);
      page = copy;
    }
    forgetPage(page);
  }
  // The last page becomes free first, so that a kept page is taken before the
  // pages that it follows.
  for (int64_t i = ceilDiv(entry.length, kPageTokens);
       i-- > ceilDiv(newLength, kPageTokens);)
    releasePage(pagesOf[i]);
  entry.length = newLength;
  for (Snapshot &snapshot : snapshots)
    if (snapshot.sequence == sequence && snapshot.position > newLength)
      snapshot.sequence = kNone;
}

std::optional<ErrorKind> SequenceState::extend(SequenceId sequence,
                                               int64_t newLength) {
  const int64_t have = ceilDiv(length(sequence), kPageTokens);
  if (newLength > context)
    return ErrorKind::PastContext;
  const int64_t need = ceilDiv(newLength, kPageTokens);
  if (need - have > freePages())
    return ErrorKind::NoPage;
  for (int64_t i = have; i < need; ++i)
    table(sequence)[i] = takePage();
  Sequence &entry = sequences[sequence];
  if (entry.length == 0)
    for (const Cache &cache : memory)
      if (cache.kind == CacheKind::Fixed)
        std::ranges::fill(bytesOfRow(cache, sequence), uint8_t{0});
  entry.length = std::max(entry.length, newLength);
  return std::nullopt;
}

uint64_t SequenceState::keep(PageId page) {
  uint64_t &serial = serials[static_cast<size_t>(page)];
  if (!serial) {
    serial = ++lastSerial;
    ++keptCount;
  }
  return serial;
}

void SequenceState::share(SequenceId sequence, PageId page) {
  Sequence &entry = sequences[sequence];
  holdPage(page);
  table(sequence)[entry.length / kPageTokens] = page;
  entry.length += kPageTokens;
}

void SequenceState::shareFront(SequenceId sequence, PageId page,
                               int64_t positions) {
  if (freeCount == 0)
    throw Error(describeFull(), ErrorKind::NoPage);
  Sequence &entry = sequences[sequence];
  PageId &to = table(sequence)[entry.length / kPageTokens];
  holdPage(page);
  if (freeCount) {
    to = copyPage(page);
    releasePage(page);
  } else {
    forgetPage(page);
    to = page;
  }
  entry.length += positions;
}

void SequenceState::merge(SequenceId sequence, int64_t index, PageId page) {
  PageId &entry = table(sequence)[index];
  holdPage(page);
  releasePage(entry);
  entry = page;
}

//===----------------------------------------------------------------------===//
// Fixed state
//===----------------------------------------------------------------------===//

int64_t SequenceState::reachable(SequenceId sequence, int64_t most) const {
  const int64_t present = length(sequence);
  if (most >= present || bytesOfFixed == 0)
    return std::min(most, present);
  int64_t found = 0;
  for (const Snapshot &snapshot : snapshots)
    if (snapshot.sequence == sequence && snapshot.position <= most)
      found = std::max(found, snapshot.position);
  return found;
}

int64_t SequenceState::rowAt(SequenceId sequence, int64_t wanted) const {
  const int64_t present = length(sequence);
  if (wanted == present || wanted == 0 || bytesOfFixed == 0)
    return sequence;
  int64_t next = present;
  for (SnapshotId i = 0; i < maxSnapshots(); ++i) {
    const Snapshot &snapshot = snapshots[static_cast<size_t>(i)];
    if (snapshot.sequence != sequence || snapshot.position < wanted)
      continue;
    if (snapshot.position == wanted)
      return rowOf(i);
    next = std::min(next, snapshot.position);
  }
  throw Error("sequence " + std::to_string(sequence) +
                  " has no snapshot at position " + std::to_string(wanted) +
                  ": it can keep " +
                  std::to_string(reachable(sequence, wanted)) +
                  " positions or " + std::to_string(next),
              ErrorKind::NoSnapshot);
}

void SequenceState::copyRow(int64_t from, int64_t to) {
  if (from == to)
    return;
  for (const Cache &cache : memory)
    if (cache.kind == CacheKind::Fixed)
      std::ranges::copy(bytesOfRow(cache, from), bytesOfRow(cache, to).begin());
}

int32_t SequenceState::freeSequences() const {
  return static_cast<int32_t>(
      std::ranges::count(sequences, false, &Sequence::open));
}

int32_t SequenceState::freeSnapshots() const {
  return static_cast<int32_t>(
      std::ranges::count(snapshots, false, &Snapshot::taken));
}

SnapshotId SequenceState::snapshot(SequenceId sequence) {
  const int64_t position = length(sequence);
  const auto free = std::ranges::find(snapshots, false, &Snapshot::taken);
  if (free == snapshots.end())
    throw Error("all " + std::to_string(snapshots.size()) +
                    " snapshots are in use",
                ErrorKind::NoSnapshot);
  *free = {true, sequence, position};
  const auto id = static_cast<SnapshotId>(free - snapshots.begin());
  copyRow(sequence, rowOf(id));
  return id;
}

const SequenceState::Snapshot &
SequenceState::entryOf(SnapshotId snapshot) const {
  if (snapshot < 0 || snapshot >= maxSnapshots() ||
      !snapshots[static_cast<size_t>(snapshot)].taken)
    throw Error("snapshot " + std::to_string(snapshot) + " does not exist");
  return snapshots[static_cast<size_t>(snapshot)];
}

void SequenceState::restore(SequenceId sequence, SnapshotId snapshot) {
  const int64_t position = entryOf(snapshot).position;
  checkLength(sequence, position);
  removePositions(sequence, position);
  copyRow(rowOf(snapshot), sequence);
}

void SequenceState::drop(SnapshotId snapshot) {
  entryOf(snapshot);
  snapshots[static_cast<size_t>(snapshot)] = {};
}

int64_t SequenceState::position(SnapshotId snapshot) const {
  return entryOf(snapshot).position;
}
