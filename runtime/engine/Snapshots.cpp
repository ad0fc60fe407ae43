//===- Snapshots.cpp - Finds snapshots by the tokens before them ----------===//

#include "engine/Snapshots.h"

#include <algorithm>

using namespace qwen;

Snapshots::Snapshots(SequenceState &sequences)
    : state(sequences), entries(static_cast<size_t>(state.maxSnapshots())) {}

// Only memory can lack.
// NOLINTNEXTLINE(bugprone-exception-escape)
Snapshots::~Snapshots() {
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].used)
      state.drop(static_cast<SnapshotId>(i));
}

std::optional<SnapshotId> Snapshots::find(const Key &key) const {
  std::optional<SnapshotId> found;
  int64_t longest = -1;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry &entry = entries[i];
    if (entry.used == 0 || entry.parent != key.parent ||
        entry.count <= longest || !hasPage(entry) ||
        entry.count > std::ssize(key.rest) ||
        !entry.identity.matches(key.identity, key.first,
                                key.first + entry.count) ||
        !std::ranges::equal(entry.rest(), key.rest.first(entry.rest().size())))
      continue;
    longest = entry.count;
    found = static_cast<SnapshotId>(i);
  }
  return found;
}

void Snapshots::makeRoom() {
  if (state.freeSnapshots())
    return;
  // A snapshot without its pages is of no more use.
  const auto first = std::ranges::min_element(
      entries, {}, [&](const Entry &e) { return hasPage(e) ? e.used : 0; });
  first->used = 0;
  state.drop(static_cast<SnapshotId>(first - entries.begin()));
}

void Snapshots::insert(SnapshotId snapshot, PageId page, const Key &key) {
  Entry &entry = entries[static_cast<size_t>(snapshot)];
  entry.used = ++time;
  entry.identity = key.identity;
  entry.parent = key.parent;
  entry.page = page;
  entry.serial = state.keep(entry.page);
  entry.count = std::ssize(key.rest);
  std::ranges::copy(key.rest, entry.tokens.begin());
}

std::optional<SnapshotId> Snapshots::take(SequenceId sequence, const Key &key) {
  if (const auto equal = find(key);
      equal &&
      entries[static_cast<size_t>(*equal)].count == std::ssize(key.rest)) {
    entries[static_cast<size_t>(*equal)].used = ++time;
    return equal;
  }
  if (entries.empty())
    return std::nullopt;
  makeRoom();
  const SnapshotId taken = state.snapshot(sequence);
  insert(taken, state.page(sequence, (state.position(taken) - 1) / kPageTokens),
         key);
  return taken;
}

std::optional<SnapshotId> Snapshots::adopt(PageId page, const Key &key,
                                           std::span<const uint8_t> bytes) {
  if (entries.empty())
    return std::nullopt;
  makeRoom();
  const std::optional<SnapshotId> adopted =
      state.adoptSnapshot(key.first + std::ssize(key.rest), bytes);
  if (adopted)
    insert(*adopted, page, key);
  return adopted;
}

void Snapshots::restore(SequenceId sequence, SnapshotId snapshot) {
  Entry &entry = entries[static_cast<size_t>(snapshot)];
  if (entry.count)
    state.shareFront(sequence, entry.page, entry.count);
  state.restore(sequence, snapshot);
  entry.used = ++time;
}
