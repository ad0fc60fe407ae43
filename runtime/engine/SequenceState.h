//===- SequenceState.h - What the engine keeps of sequences -----*- C++ -*-===//
//
// The paged caches are a pool of pages of 64 positions, with a page table for
// each sequence. A page has the positions of all paged caches. Sequences may
// share full pages; a partial page belongs to one sequence.
//
// All programs of a model share the pages, but one may have run fewer positions
// than another: a draft head that follows `forward`, or did not run in the
// sequence that kept a page. So a sequence has a length for each group of
// layers (CacheGroups.h), and a page a number of slots. A program goes on at
// the least length of its groups, and what it computes for a position must
// depend on the tokens up to there only, which are the same for all programs.
//
// A page that no sequence holds is free. A free page may be kept: its content
// stays until it is taken, and until then a sequence may share it again, or
// copy its first positions. Kept pages are taken last, in the order in which
// they became free.
//
// The fixed caches have the fixed state of each sequence: that after its last
// position and, while it has reserved rows for them, those after the positions
// before, as far as programs can step back. A snapshot is a copy of the last
// one. So a sequence of a model with fixed caches can lose its last positions
// only if it loses all, still has the state of that length, or has a snapshot
// there. After a branch or a snapshot it has one state.
//
// A sequence has a row of the fixed caches, and takes further ones of a pool
// while it keeps several states. Its row of the page tables ends with the
// numbers of its rows, by the length modulo their number (Context::caches). All
// are the same while it keeps one state. So no state is copied when it takes or
// returns rows.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SEQUENCESTATE_H
#define QWEN_RUNTIME_ENGINE_SEQUENCESTATE_H

#include "artifact/File.h"
#include "engine/CacheGroups.h"

#include "qwen/ABI/Caches.h"
#include "qwen/Support/Error.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// Number of a sequence in a SequenceState: the index of its page table.
using SequenceId = int32_t;

/// Number of a page in the pool.
using PageId = int32_t;

/// Number of a snapshot.
using SnapshotId = int32_t;

struct StateLimits {
  int64_t pages;
  /// Maximum number of open sequences, and of positions in each.
  int32_t sequences;
  int64_t context;
  /// Maximum number of snapshots.
  int32_t snapshots = 0;
  /// Maximum number of sequences that keep several states.
  int32_t stepping = INT32_MAX;
  /// Ends the text of describeFull.
  std::string whyNotMore = {};
};

/// Allocates nothing after its construction. Pages, sequences and snapshots
/// take memory from their first use on.
class SequenceState {
public:
  /// `caches` belong to all `programs` (mergeCache), or to one program.
  /// Throws Error if there is no address space for all caches.
  SequenceState(std::span<const CacheInfo> caches, const StateLimits &limits,
                std::span<const ProgramInfo> programs = {});

  /// The base of each cache, for Context::caches.
  uint8_t *const *caches() const { return bases.data(); }
  int64_t pages() const { return static_cast<int64_t>(references.size()); }
  /// All caches take memory of a NUMA node, where it has some.
  void preferNode(int node) const {
    for (const Cache &cache : memory)
      cache.memory.preferNode(node);
  }
  /// Number of pages that no sequence holds, kept ones too.
  int64_t freePages() const { return freeCount; }
  /// Number of kept pages, free or not.
  int64_t keptPages() const { return keptCount; }
  /// Maximum number of open sequences.
  int32_t maxSequences() const {
    return static_cast<int32_t>(sequences.size());
  }
  int32_t freeSequences() const;
  /// Bytes of the fixed state after a position, and of a snapshot; 0 if the
  /// model has no fixed caches.
  int64_t fixedBytes() const { return bytesOfFixed; }
  int32_t maxSnapshots() const {
    return static_cast<int32_t>(snapshots.size());
  }
  int32_t freeSnapshots() const;
  /// Maximum number of sequences that can step back at the same time. Without
  /// fixed caches, all can.
  int32_t maxStepping() const {
    return bytesOfFixed ? stepping : maxSequences();
  }
  /// Makes a sequence keep the states after its last LimitsInfo::stepBack
  /// positions, from the next ones on. Returns false if it cannot because
  /// others do. Does nothing without fixed caches.
  bool reserveStates(SequenceId sequence);
  /// Makes a sequence keep its last state alone.
  void releaseStates(SequenceId sequence);
  /// The row of the fixed caches with the state of a sequence after `length`
  /// positions.
  int64_t rowAfter(SequenceId sequence, int64_t length) const {
    return states == 1 ? sequence
                       : tables[static_cast<size_t>((sequence + 1) * stride -
                                                    states + length % states)];
  }

  /// [sequence][pageTableStride()], for Context::pageTables.
  const PageId *pageTables() const { return tables.data(); }
  int64_t pageTableStride() const { return stride; }

  /// Opens an empty sequence. Throws Error if all are open.
  SequenceId open();
  /// Opens a sequence with the first `length` positions of `parent`, in all
  /// programs that have run them. Full pages are shared; a partial one and the
  /// fixed state are copied. Throws Error if
  /// `parent` cannot keep `length` positions (see truncate), or if no sequence
  /// or no page is left.
  SequenceId branch(SequenceId parent, int64_t length);
  /// Frees a sequence and the pages that no other sequence shares. Snapshots
  /// stay.
  void close(SequenceId sequence);
  bool isOpen(SequenceId sequence) const;

  /// Number of positions that a program, an index in the manifest, has run in a
  /// sequence; by default `forward`.
  int64_t length(SequenceId sequence, size_t program = 0) const;
  /// Whether a program may run a position: the next one or, without fixed
  /// caches, also one that it has run.
  bool canRun(SequenceId sequence, size_t program, int64_t position) const;
  /// Removes the positions from `length` (at most the greatest of a program) on
  /// from all programs, and frees the empty pages. Copies the last page if it
  /// becomes partial and is shared; throws Error if no page is left for the
  /// copy. If only this sequence holds it and the positions that it had when it
  /// was kept do not all stay, it is no longer kept. With fixed
  /// caches, throws Error(NoSnapshot) unless `length` is reachable.
  void truncate(SequenceId sequence, int64_t length);
  /// The greatest length up to `length` at which the state of a sequence is
  /// known: every length without fixed caches, otherwise 0, the present length,
  /// up to LimitsInfo::stepBack lengths before that have run since
  /// reserveStates, and the lengths of the sequence's snapshots.
  int64_t reachable(SequenceId sequence, int64_t length) const;
  /// Extends a sequence to `length` positions, which a program will run.
  /// Changes nothing and returns PastContext or NoPage if that is not possible.
  std::optional<ErrorKind> extend(SequenceId sequence, int64_t length,
                                  size_t program = 0);

  /// The page of positions 64 * index .. 64 * index + 63 of a sequence.
  PageId page(SequenceId sequence, int64_t index) const {
    return tables[static_cast<size_t>(sequence * stride + index)];
  }
  /// Keeps a page that a sequence holds, and returns its serial number. The
  /// sequence may append positions to a partial page; the present ones stay.
  uint64_t keep(PageId page);
  /// The serial number of a page that has been kept and not taken since then,
  /// else 0. No two contents have the same number.
  uint64_t serial(PageId page) const {
    return serials[static_cast<size_t>(page)];
  }
  /// `forgotten` is called for each page that is no longer kept, with the
  /// serial number that it had. It must not throw.
  void onForget(std::function<void(PageId, uint64_t)> forgotten) {
    forget = std::move(forgotten);
  }
  /// Makes a kept page the last of the free ones to be taken.
  void renew(PageId page);
  /// Appends the 64 positions of a kept page to a sequence of full pages, in
  /// the programs that have run them. With fixed caches, the sequence then
  /// needs a `restore`.
  void share(SequenceId sequence, PageId page);
  /// Appends a copy of the first `positions` of a kept page to a sequence of
  /// full pages, as `share` does. Takes the page itself if no other is free.
  /// Throws Error(NoPage).
  void shareFront(SequenceId sequence, PageId page, int64_t positions);
  /// Makes a sequence use the kept `page`, which must have the same tokens, as
  /// its page `index`, unless a program has run fewer of its positions.
  void merge(SequenceId sequence, int64_t index, PageId page);

  /// Copies the fixed state of a sequence after its positions in `forward`.
  /// Throws Error(NoSnapshot) if the
  /// maximum number of snapshots exists.
  SnapshotId snapshot(SequenceId sequence);
  /// Gives a sequence the fixed state of a snapshot, and removes the positions
  /// after it. The sequence may be another one if it has the same tokens up to
  /// there. Throws Error if it is shorter, and as truncate does.
  void restore(SequenceId sequence, SnapshotId snapshot);
  /// Frees a snapshot.
  void drop(SnapshotId snapshot);
  /// The length that the sequence had at the snapshot.
  int64_t position(SnapshotId snapshot) const;

  /// Size of what `readPage` copies: the bytes of a page in the caches that
  /// `forward` uses, and how many of its positions each program has run.
  int64_t pageBytes() const;
  void readPage(PageId page, std::span<uint8_t> to) const;
  /// The number of parts in which these bytes lie in memory.
  size_t pageParts() const;
  /// Takes a page for such bytes, which a caller brings into its parts, and
  /// fills `parts` with these. Throws Error(NoPage).
  PageId beginPage(std::span<std::span<uint8_t>> parts);
  /// Frees a page of beginPage. If all bytes are there and `forward` has run
  /// all of it, it is kept and the last to be taken. Returns whether it is.
  bool endPage(PageId page, bool isFilled);
  /// Appends a page with bytes of `readPage` to a sequence, as `share` does.
  /// Returns nothing, and changes nothing, if no page is free or if `forward`
  /// has not run all of it.
  std::optional<PageId> adoptPage(SequenceId sequence,
                                  std::span<const uint8_t> from);
  /// Makes such bytes a page that is free and kept, and the last to be taken.
  /// Returns nothing, and changes nothing, if no page is free or if `forward`
  /// has not run `positions` of it.
  std::optional<PageId> adoptKept(std::span<const uint8_t> from,
                                  int64_t positions);
  /// The same of a snapshot, whose sequence had `position` positions. Returns
  /// nothing, too, if the maximum number of snapshots exists.
  int64_t snapshotBytes() const;
  void readSnapshot(SnapshotId snapshot, std::span<uint8_t> to) const;
  std::optional<SnapshotId> adoptSnapshot(int64_t position,
                                          std::span<const uint8_t> from);

  /// Why no page is free.
  std::string describeFull() const;

private:
  struct Sequence {
    bool open = false;
    /// The positions of its pages: the greatest length of a program.
    int64_t length = 0;
    /// Every group has the state after as many positions as this or more.
    int64_t oldest = 0;
  };
  struct Snapshot {
    bool taken = false;
    /// The sequence that still has the snapshot's positions, or kNone.
    SequenceId sequence = kNone;
    int64_t position = 0;
  };
  struct Cache {
    CacheKind kind;
    int64_t stride;
    Mapping memory;
    /// Whether `forward` has layers there. The caches of a program with
    /// sequences of its own (kOwnCachesAttr) are not worth a copy.
    bool isForwards;

    bool isCopied() const { return kind == CacheKind::Paged && isForwards; }
  };
  static constexpr SequenceId kNone = -1;

  PageId *table(SequenceId sequence) {
    return tables.data() + sequence * stride;
  }
  /// Takes the first page of the free list. Throws Error if there is none.
  PageId takePage();
  /// Counts one more sequence that holds a page.
  void holdPage(PageId page);
  void releasePage(PageId page);
  void unlink(PageId page);
  /// A kept page is no longer kept.
  void forgetPage(PageId page);
  /// Links a page into the free list before `next`.
  void linkBefore(PageId page, PageId next);
  /// Takes a page and copies `page` into it.
  PageId copyPage(PageId page);
  /// Whether `slots` of a page can be, and `forward` has run `positions`.
  bool haveRun(std::span<const uint8_t> slots, int64_t positions) const;
  /// Takes a page for bytes of `readPage`, or returns nothing. `forward` has
  /// run `positions` or more of the page.
  std::optional<PageId> fillPage(std::span<const uint8_t> from,
                                 int64_t positions);
  /// No program has run more than the first `positions` of a page.
  void limitSlots(PageId page, int64_t positions);
  /// Appends the first `positions` of `page` to a sequence of full pages.
  void append(SequenceId sequence, PageId page, int64_t positions);
  void checkOpen(SequenceId sequence) const;
  void checkLength(SequenceId sequence, int64_t length) const;
  /// The snapshot, which must exist.
  const Snapshot &entryOf(SnapshotId snapshot) const;

  // The positions of a sequence and of a snapshot in a group, and the slots of
  // a page, from the first on.
  int64_t &lengthOf(SequenceId sequence, size_t group) {
    return lengths[static_cast<size_t>(sequence) * groups.size() + group];
  }
  int64_t lengthOf(SequenceId sequence, size_t group) const {
    return lengths[static_cast<size_t>(sequence) * groups.size() + group];
  }
  int64_t &snapshotLength(SnapshotId snapshot, size_t group) {
    return snapshotLengths[static_cast<size_t>(snapshot) * groups.size() +
                           group];
  }
  uint8_t &slotsOf(PageId page, size_t group) {
    return slots[static_cast<size_t>(page) * groups.size() + group];
  }
  /// The positions of a sequence whose slots its pages have without a gap.
  int64_t filled(SequenceId sequence, size_t group);

  /// The numbers of a sequence's rows, by the length modulo their number.
  std::span<PageId> rowsOf(SequenceId sequence) {
    return {table(sequence + 1) - states, static_cast<size_t>(states)};
  }
  /// How many states a sequence keeps.
  int64_t statesOf(SequenceId sequence) const {
    return rowAfter(sequence, 0) == rowAfter(sequence, 1) ? 1 : states;
  }
  /// The row in which a sequence has the state of the first group that has any,
  /// as an index of rowsOf.
  size_t presentRow(SequenceId sequence) const;
  // The fixed caches have the rows of all sequences, then one for each
  // snapshot. At length 0, `extend` fills a row with zeros.
  int64_t rowOf(SnapshotId snapshot) const {
    return maxSequences() + stepping * (states - 1) + snapshot;
  }
  std::span<uint8_t> bytesAt(const CacheGroup::FixedLayer &layer,
                             int64_t row) const;
  /// The bytes of a page in a paged cache.
  static std::span<uint8_t> bytesIn(const Cache &cache, PageId page) {
    return {cache.memory.data() + page * cache.stride,
            static_cast<size_t>(cache.stride)};
  }
  /// The part of a vector by page or snapshot and group that is of `index`.
  template <typename VectorType>
  auto groupsAt(VectorType &all, int32_t index) const {
    return std::span(all).subspan(static_cast<size_t>(index) * groups.size(),
                                  groups.size());
  }
  void copyRow(const CacheGroup &group, int64_t from, int64_t to);
  /// The snapshot that has the state after `length` positions, or nothing if
  /// the sequence has it. Throws Error(NoSnapshot).
  std::optional<SnapshotId> snapshotAt(SequenceId sequence,
                                       int64_t length) const;
  /// Gives a sequence of as many positions the fixed state of a snapshot.
  void load(SequenceId sequence, SnapshotId snapshot);
  /// Removes positions, but leaves the fixed state as it is.
  void removePositions(SequenceId sequence, int64_t length);

  int64_t context;
  std::string whyNotMore;
  int64_t bytesOfFixed;
  /// CacheInfo::states of the fixed caches.
  int64_t states;
  int32_t stepping;
  int64_t stride;
  std::vector<CacheGroup> groups;
  /// Indices of the groups of each program.
  std::vector<std::vector<size_t>> groupsOf;
  std::vector<Cache> memory;
  std::vector<uint8_t *> bases;
  std::vector<PageId> tables;
  /// Rows of the fixed caches that no sequence has.
  std::vector<PageId> freeRows;
  std::vector<Sequence> sequences;
  std::vector<Snapshot> snapshots;
  /// [sequence], [snapshot] and [page], each [group].
  std::vector<int64_t> lengths, snapshotLengths;
  std::vector<uint8_t> slots;
  /// Number of sequences that hold each page.
  std::vector<int32_t> references;
  /// Serial number of each page, or 0 if it is not kept.
  std::vector<uint64_t> serials;
  /// The positions that each kept page had when it was kept last.
  std::vector<uint8_t> keptSlots;
  uint64_t lastSerial = 0;
  int64_t keptCount = 0;
  std::function<void(PageId, uint64_t)> forget;
  /// The free pages as a ring; entry pages() is its head. The next page to take
  /// is first.
  std::vector<PageId> nextFree, previousFree;
  int64_t freeCount = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SEQUENCESTATE_H
