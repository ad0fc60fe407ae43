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

void Snapshots::take(SequenceId sequence, const Key &key) {
  const auto count = std::ssize(key.rest);
  if (const auto equal = find(key);
      equal && entries[static_cast<size_t>(*equal)].count == count) {
    entries[static_cast<size_t>(*equal)].used = ++time;
    return;
  }
  if (entries.empty())
    return;
  // A snapshot without its pages is of no more use.
  const auto first = std::ranges::min_element(
      entries, {}, [&](const Entry &e) { return hasPage(e) ? e.used : 0; });
  if (state.freeSnapshots() == 0)
    state.drop(static_cast<SnapshotId>(first - entries.begin()));
  Entry &entry = entries[static_cast<size_t>(state.snapshot(sequence))];
  entry.used = ++time;
  entry.identity = key.identity;
  entry.parent = key.parent;
  entry.page = state.page(sequence, (state.length(sequence) - 1) / kPageTokens);
  entry.serial = state.keep(entry.page);
  entry.count = count;
  std::ranges::copy(key.rest, entry.tokens.begin());
}

void Snapshots::restore(SequenceId sequence, SnapshotId snapshot) {
  Entry &entry = entries[static_cast<size_t>(snapshot)];
  if (entry.count)
    state.shareFront(sequence, entry.page, entry.count);
  state.restore(sequence, snapshot);
  entry.used = ++time;
}
