//===- SequenceState.cpp - What the engine keeps of sequences -------------===//

#include "engine/SequenceState.h"

#include <algorithm>
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

/// CacheInfo::states of the fixed caches, or 1. Throws Error if they differ.
static int64_t statesOfAll(std::span<const CacheInfo> caches) {
  std::optional<int64_t> states;
  for (const CacheInfo &cache : caches) {
    if (cache.kind != CacheKind::Fixed)
      continue;
    if (states.value_or(cache.states()) != cache.states())
      throw Error("the " + cache.name + " cache steps back " +
                  std::to_string(cache.stepBack) + " tokens and another one " +
                  std::to_string(*states - 1) +
                  " when all must step back as many");
    states = cache.states();
  }
  return states.value_or(1);
}

SequenceState::SequenceState(std::span<const CacheInfo> caches,
                             const StateLimits &limits,
                             std::span<const ProgramInfo> programs)
    : context(limits.context), whyNotMore(limits.whyNotMore),
      bytesOfFixed(bytesOf(caches, CacheKind::Fixed)),
      states(statesOfAll(caches)),
      stepping(states == 1 ? 0 : std::min(limits.stepping, limits.sequences)),
      stride(ceilDiv(limits.context, kPageTokens) + (states == 1 ? 0 : states)),
      groups(groupLayers(caches, programs)),
      groupsOf(std::max<size_t>(1, programs.size())) {
  if (limits.pages < 1 || limits.pages > INT32_MAX)
    throw Error("a KV cache of " + std::to_string(limits.pages) +
                " pages is not possible");
  if (limits.sequences < 1)
    throw Error("a KV cache needs at least one sequence");
  if (limits.snapshots < 0)
    throw Error("the maximum number of snapshots is " +
                std::to_string(limits.snapshots) + " when 0 or more is needed");
  for (const CacheInfo &cache : caches) {
    const int64_t count =
        cache.kind == CacheKind::Paged
            ? limits.pages
            : limits.sequences + stepping * (states - 1) + limits.snapshots;
    const auto isSame = [&](const CacheInfo &own) {
      return isSameCache(own, cache);
    };
    memory.push_back(
        {cache.kind, cache.stride(), cacheMemory(cache, count),
         programs.empty() ||
             std::ranges::any_of(programs.front().caches, isSame)});
    bases.push_back(memory.back().memory.data());
  }
  tables.assign(static_cast<size_t>(limits.sequences * stride), 0);
  sequences.resize(static_cast<size_t>(limits.sequences));
  for (SequenceId i = 0; states > 1 && i < limits.sequences; ++i)
    std::ranges::fill(rowsOf(i), i);
  for (int64_t i = stepping * (states - 1); i-- > 0;)
    freeRows.push_back(static_cast<PageId>(limits.sequences + i));
  snapshots.resize(static_cast<size_t>(limits.snapshots));
  for (size_t i = 0; i < groups.size(); ++i)
    for (size_t program : groups[i].programs)
      groupsOf[program].push_back(i);
  const auto count = static_cast<size_t>(limits.pages);
  lengths.assign(sequences.size() * groups.size(), 0);
  snapshotLengths.assign(snapshots.size() * groups.size(), 0);
  slots.assign(count * groups.size(), 0);
  references.assign(count, 0);
  serials.assign(count, 0);
  keptSlots.assign(count, 0);
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
  checkOpen(sequence);
  const int64_t present = sequences[static_cast<size_t>(sequence)].length;
  if (wanted < 0 || wanted > present)
    throw Error("sequence " + std::to_string(sequence) + " has " +
                std::to_string(present) + " positions and cannot keep " +
                std::to_string(wanted));
}

bool SequenceState::isOpen(SequenceId sequence) const {
  return sequence >= 0 && static_cast<size_t>(sequence) < sequences.size() &&
         sequences[static_cast<size_t>(sequence)].open;
}

int64_t SequenceState::length(SequenceId sequence, size_t program) const {
  checkOpen(sequence);
  int64_t least = sequences[static_cast<size_t>(sequence)].length;
  for (size_t group : groupsOf[program])
    least = std::min(least, lengthOf(sequence, group));
  return least;
}

bool SequenceState::canRun(SequenceId sequence, size_t program,
                           int64_t position) const {
  return position >= 0 && position <= length(sequence, program) &&
         std::ranges::all_of(groupsOf[program], [&](size_t group) {
           return groups[group].fixed.empty() ||
                  lengthOf(sequence, group) == position;
         });
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
  for (size_t group = 0; group < groups.size(); ++group)
    slotsOf(page, group) = 0;
  return page;
}

void SequenceState::forgetPage(PageId page) {
  const uint64_t serial = std::exchange(serials[static_cast<size_t>(page)], 0);
  if (!serial)
    return;
  --keptCount;
  if (forget)
    forget(page, serial);
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

void SequenceState::renew(PageId page) {
  if (references[page] || !serial(page))
    return;
  unlink(page);
  linkBefore(page, static_cast<PageId>(pages()));
}

void SequenceState::limitSlots(PageId page, int64_t positions) {
  for (size_t group = 0; group < groups.size(); ++group)
    slotsOf(page, group) = static_cast<uint8_t>(
        std::min<int64_t>(slotsOf(page, group), positions));
}

PageId SequenceState::copyPage(PageId page) {
  const PageId copy = takePage();
  for (size_t group = 0; group < groups.size(); ++group)
    slotsOf(copy, group) = slotsOf(page, group);
  for (const Cache &cache : memory)
    if (cache.kind == CacheKind::Paged)
      std::ranges::copy(bytesIn(cache, page), bytesIn(cache, copy).begin());
  return copy;
}

SequenceId SequenceState::open() {
  for (size_t i = 0; i < sequences.size(); ++i)
    if (!sequences[i].open) {
      sequences[i] = {.open = true};
      return static_cast<SequenceId>(i);
    }
  throw Error("all " + std::to_string(sequences.size()) + " sequences are open",
              ErrorKind::NoSequence);
}

SequenceId SequenceState::branch(SequenceId parent, int64_t positions) {
  checkLength(parent, positions);
  const std::optional<SnapshotId> snapshot = snapshotAt(parent, positions);
  const int64_t full = positions / kPageTokens;
  const SequenceId child = open();
  PageId *to = table(child);
  const PageId *from = table(parent);
  if (positions % kPageTokens) {
    try {
      to[full] = copyPage(from[full]);
      limitSlots(to[full], positions % kPageTokens);
    } catch (...) {
      sequences[child].open = false;
      throw;
    }
  }
  for (int64_t i = 0; i < full; ++i) {
    to[i] = from[i];
    holdPage(to[i]);
  }
  sequences[child].length = sequences[child].oldest = positions;
  for (size_t i = 0; i < groups.size(); ++i) {
    const int64_t same = std::min(lengthOf(parent, i), positions);
    lengthOf(child, i) = same;
    if (!snapshot)
      copyRow(groups[i], rowAfter(parent, same), rowAfter(child, same));
  }
  if (snapshot)
    load(child, *snapshot);
  return child;
}

void SequenceState::close(SequenceId sequence) {
  truncate(sequence, 0);
  releaseStates(sequence);
  sequences[sequence].open = false;
  for (Snapshot &snapshot : snapshots)
    if (snapshot.sequence == sequence)
      snapshot.sequence = kNone;
}

void SequenceState::truncate(SequenceId sequence, int64_t newLength) {
  checkLength(sequence, newLength);
  const std::optional<SnapshotId> snapshot = snapshotAt(sequence, newLength);
  removePositions(sequence, newLength);
  if (snapshot)
    load(sequence, *snapshot);
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
    if (keptSlots[static_cast<size_t>(page)] > newLength % kPageTokens)
      forgetPage(page);
    limitSlots(page, newLength % kPageTokens);
  }
  // The last page becomes free first, so that a kept page is taken before the
  // pages that it follows.
  for (int64_t i = ceilDiv(entry.length, kPageTokens);
       i-- > ceilDiv(newLength, kPageTokens);)
    releasePage(pagesOf[i]);
  entry.length = newLength;
  entry.oldest = std::min(entry.oldest, newLength);
  for (size_t i = 0; i < groups.size(); ++i)
    lengthOf(sequence, i) = std::min(lengthOf(sequence, i), newLength);
  for (Snapshot &snapshot : snapshots)
    if (snapshot.sequence == sequence && snapshot.position > newLength)
      snapshot.sequence = kNone;
}

std::optional<ErrorKind>
SequenceState::extend(SequenceId sequence, int64_t newLength, size_t program) {
  checkOpen(sequence);
  Sequence &entry = sequences[sequence];
  const int64_t have = ceilDiv(entry.length, kPageTokens);
  if (newLength > context)
    return ErrorKind::PastContext;
  const int64_t need = ceilDiv(newLength, kPageTokens);
  if (need - have > freePages())
    return ErrorKind::NoPage;
  for (int64_t i = have; i < need; ++i)
    table(sequence)[i] = takePage();
  entry.length = std::max(entry.length, newLength);
  for (size_t i : groupsOf[program]) {
    const CacheGroup &group = groups[i];
    int64_t &present = lengthOf(sequence, i);
    if (present == 0)
      for (const CacheGroup::FixedLayer &layer : group.fixed)
        std::ranges::fill(bytesAt(layer, rowAfter(sequence, 0)), uint8_t{0});
    for (int64_t at = present / kPageTokens; at * kPageTokens < newLength;
         ++at) {
      uint8_t &own = slotsOf(page(sequence, at), i);
      own = static_cast<uint8_t>(
          std::clamp<int64_t>(newLength - at * kPageTokens, own, kPageTokens));
    }
    present = std::max(present, newLength);
    if (!group.fixed.empty())
      entry.oldest = std::max(entry.oldest, newLength - statesOf(sequence) + 1);
  }
  return std::nullopt;
}

uint64_t SequenceState::keep(PageId page) {
  uint64_t &serial = serials[static_cast<size_t>(page)];
  if (!serial) {
    serial = ++lastSerial;
    ++keptCount;
  }
  uint8_t &kept = keptSlots[static_cast<size_t>(page)];
  kept = 0;
  for (const uint8_t own : groupsAt(slots, page))
    kept = std::max(kept, own);
  return serial;
}

void SequenceState::append(SequenceId sequence, PageId page,
                           int64_t positions) {
  int64_t &total = sequences[sequence].length;
  table(sequence)[total / kPageTokens] = page;
  for (size_t i = 0; i < groups.size(); ++i)
    if (groups[i].fixed.empty() && lengthOf(sequence, i) == total)
      lengthOf(sequence, i) += slotsOf(page, i);
  total += positions;
}

void SequenceState::share(SequenceId sequence, PageId page) {
  holdPage(page);
  append(sequence, page, kPageTokens);
}

void SequenceState::shareFront(SequenceId sequence, PageId page,
                               int64_t positions) {
  if (freeCount == 0)
    throw Error(describeFull(), ErrorKind::NoPage);
  holdPage(page);
  if (freeCount) {
    const PageId copy = copyPage(page);
    releasePage(page);
    page = copy;
  } else {
    forgetPage(page);
  }
  limitSlots(page, positions);
  append(sequence, page, positions);
}

void SequenceState::merge(SequenceId sequence, int64_t index, PageId page) {
  PageId &entry = table(sequence)[index];
  for (size_t i = 0; i < groups.size(); ++i)
    if (slotsOf(page, i) < slotsOf(entry, i))
      return;
  holdPage(page);
  releasePage(entry);
  entry = page;
}

//===----------------------------------------------------------------------===//
// Fixed state
//===----------------------------------------------------------------------===//

int64_t SequenceState::reachable(SequenceId sequence, int64_t most) const {
  checkOpen(sequence);
  const Sequence &entry = sequences[static_cast<size_t>(sequence)];
  if (most >= entry.oldest || bytesOfFixed == 0)
    return std::min(most, entry.length);
  int64_t found = 0;
  for (const Snapshot &snapshot : snapshots)
    if (snapshot.sequence == sequence && snapshot.position <= most)
      found = std::max(found, snapshot.position);
  return found;
}

std::optional<SnapshotId> SequenceState::snapshotAt(SequenceId sequence,
                                                    int64_t wanted) const {
  const int64_t oldest = sequences[static_cast<size_t>(sequence)].oldest;
  if (wanted == 0 || wanted >= oldest || bytesOfFixed == 0)
    return std::nullopt;
  int64_t next = oldest;
  for (SnapshotId i = 0; i < maxSnapshots(); ++i) {
    const Snapshot &snapshot = snapshots[static_cast<size_t>(i)];
    if (snapshot.sequence != sequence || snapshot.position < wanted)
      continue;
    if (snapshot.position == wanted)
      return i;
    next = std::min(next, snapshot.position);
  }
  throw Error("sequence " + std::to_string(sequence) +
                  " has no snapshot at position " + std::to_string(wanted) +
                  ": it can keep " +
                  std::to_string(reachable(sequence, wanted)) +
                  " positions or " + std::to_string(next),
              ErrorKind::NoSnapshot);
}

std::span<uint8_t> SequenceState::bytesAt(const CacheGroup::FixedLayer &layer,
                                          int64_t row) const {
  const Cache &cache = memory[layer.cache];
  return {cache.memory.data() + row * cache.stride + layer.offset,
          static_cast<size_t>(layer.bytes)};
}

void SequenceState::copyRow(const CacheGroup &group, int64_t from, int64_t to) {
  if (from == to)
    return;
  for (const CacheGroup::FixedLayer &layer : group.fixed)
    std::ranges::copy(bytesAt(layer, from), bytesAt(layer, to).begin());
}

size_t SequenceState::presentRow(SequenceId sequence) const {
  const auto isFixed = [](const CacheGroup &of) { return !of.fixed.empty(); };
  const auto group = static_cast<size_t>(std::ranges::find_if(groups, isFixed) -
                                         groups.begin());
  return static_cast<size_t>(lengthOf(sequence, group) % states);
}

bool SequenceState::reserveStates(SequenceId sequence) {
  checkOpen(sequence);
  if (bytesOfFixed == 0 || statesOf(sequence) > 1)
    return true;
  if (states == 1 || std::ssize(freeRows) < states - 1)
    return false;
  const std::span<PageId> rows = rowsOf(sequence);
  const PageId own = rows.front();
  const size_t present = presentRow(sequence);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == present)
      continue;
    rows[i] = freeRows.back();
    freeRows.pop_back();
  }
  // Programs of other lengths have their states elsewhere.
  for (size_t i = 0; i < groups.size(); ++i)
    copyRow(groups[i], own, rowAfter(sequence, lengthOf(sequence, i)));
  return true;
}

void SequenceState::releaseStates(SequenceId sequence) {
  checkOpen(sequence);
  if (statesOf(sequence) == 1)
    return;
  const std::span<PageId> rows = rowsOf(sequence);
  const size_t present = presentRow(sequence);
  const PageId own = rows[present];
  int64_t &oldest = sequences[sequence].oldest;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].fixed.empty())
      continue;
    const int64_t known = lengthOf(sequence, i);
    copyRow(groups[i], rowAfter(sequence, known), own);
    oldest = std::max(oldest, known);
  }
  for (size_t i = 0; i < rows.size(); ++i)
    if (i != present)
      freeRows.push_back(rows[i]);
  std::ranges::fill(rows, own);
}

int64_t SequenceState::filled(SequenceId sequence, size_t group) {
  const int64_t total = sequences[sequence].length;
  int64_t positions = 0;
  while (positions < total) {
    const uint8_t own = slotsOf(page(sequence, positions / kPageTokens), group);
    positions += own;
    if (own < kPageTokens)
      break;
  }
  return positions;
}

void SequenceState::load(SequenceId sequence, SnapshotId snapshot) {
  for (size_t i = 0; i < groups.size(); ++i) {
    const CacheGroup &group = groups[i];
    if (group.fixed.empty())
      continue;
    // A program starts over if pages of other sequences lack its positions.
    const int64_t known = snapshotLength(snapshot, i);
    const bool isHere = !group.isPaged || filled(sequence, i) >= known;
    lengthOf(sequence, i) = isHere ? known : 0;
    copyRow(group, rowOf(snapshot), rowAfter(sequence, known));
  }
  sequences[sequence].oldest = sequences[sequence].length;
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
  for (size_t i = 0; i < groups.size(); ++i) {
    const CacheGroup &group = groups[i];
    const int64_t present = lengthOf(sequence, i);
    // The state of a program that is ahead may be gone; it then starts over.
    const bool isHere =
        present <= position || position >= sequences[sequence].oldest;
    const int64_t known = isHere ? std::min(present, position) : 0;
    snapshotLength(id, i) = known;
    copyRow(group, rowAfter(sequence, known), rowOf(id));
  }
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
  load(sequence, snapshot);
}

void SequenceState::drop(SnapshotId snapshot) {
  entryOf(snapshot);
  snapshots[static_cast<size_t>(snapshot)] = {};
}

int64_t SequenceState::position(SnapshotId snapshot) const {
  return entryOf(snapshot).position;
}
