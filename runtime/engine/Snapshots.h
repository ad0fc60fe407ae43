//===- Snapshots.h - Finds snapshots by the tokens before them --*- C++ -*-===//
//
// Owns all snapshots of a SequenceState. If there is no room for another, the
// least recently used one goes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SNAPSHOTS_H
#define QWEN_RUNTIME_ENGINE_SNAPSHOTS_H

#include "engine/Prompt.h"
#include "engine/SequenceState.h"

#include <array>
#include <span>

namespace qwen {

/// Allocates nothing after its construction.
class Snapshots {
public:
  /// Tokens of a sequence.
  struct Key {
    const Identity &identity;
    /// Serial number of the last full page before `rest`; 0 if there is none.
    uint64_t parent;
    /// Position of the first token of `rest`.
    int64_t first;
    /// The tokens after that page.
    std::span<const int32_t> rest;
  };

  /// `state` must outlive the snapshots.
  explicit Snapshots(SequenceState &state);
  ~Snapshots();
  Snapshots(const Snapshots &) = delete;
  Snapshots &operator=(const Snapshots &) = delete;

  /// Takes a snapshot of a sequence, unless there is one with the same tokens.
  /// `key.rest` has the tokens of the last page if that is partial, else none.
  /// Returns the snapshot; nothing if the maximum number is 0.
  std::optional<SnapshotId> take(SequenceId sequence, const Key &key);

  /// Makes a snapshot of bytes (SequenceState::readSnapshot) behind the tokens
  /// of `key`. The kept `page` has the last of these tokens. Returns nothing if
  /// the bytes are no snapshot.
  std::optional<SnapshotId> adopt(PageId page, const Key &key,
                                  std::span<const uint8_t> bytes);

  /// The longest snapshot with all tokens up to `key.parent` and the first of
  /// `key.rest`, but not with the page after it.
  std::optional<SnapshotId> find(const Key &key) const;

  /// Extends a sequence that has all tokens up to the parent of a snapshot to
  /// the position of the snapshot. Throws Error(NoPage).
  void restore(SequenceId sequence, SnapshotId snapshot);

private:
  struct Entry {
    /// The time of its last use; 0 if there is no snapshot.
    uint64_t used = 0;
    Identity identity = {};
    uint64_t parent = 0;
    /// The last page, and its serial number when the snapshot was taken.
    PageId page = 0;
    uint64_t serial = 0;
    /// Tokens of the last page if that is partial, else 0.
    int64_t count = 0;
    std::array<int32_t, kPageTokens> tokens = {};

    std::span<const int32_t> rest() const {
      return std::span(tokens).first(static_cast<size_t>(count));
    }
  };

  /// Makes place for a snapshot if there is none.
  void makeRoom();
  /// Notes what a new snapshot is found by, whose last page is `page`.
  void insert(SnapshotId snapshot, PageId page, const Key &key);
  /// Whether the last page still has the positions of the snapshot.
  bool hasPage(const Entry &entry) const {
    return state.serial(entry.page) == entry.serial;
  }

  SequenceState &state;
  /// By SnapshotId.
  std::vector<Entry> entries;
  uint64_t time = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SNAPSHOTS_H
