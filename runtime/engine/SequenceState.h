//===- SequenceState.h - Paged cache of keys and values ---------*- C++ -*-===//
//
// A pool of pages of 64 positions, and a page table for each sequence.
// Sequences may share full pages; a partial page belongs to one sequence.
//
// A page that no sequence holds is free. A free page may be kept: its content
// stays until it is taken, and until then a sequence may share it again. Kept
// pages are taken last, in the order in which they became free.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SEQUENCESTATE_H
#define QWEN_RUNTIME_ENGINE_SEQUENCESTATE_H

#include "artifact/File.h"

#include "qwen/ABI/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

/// Number of a sequence in a SequenceState: the index of its page table.
using SequenceId = int32_t;

/// Number of a page in the pool.
using PageId = int32_t;

/// Allocates nothing after its construction. A page takes memory from its first
/// use on.
class SequenceState {
public:
  /// Makes a pool of `pages` pages of `pageBytes`, for at most `sequences` open
  /// sequences of at most `context` positions. `whyNotMore` ends the text of
  /// describeFull. Throws Error if there is no address space for the pool.
  SequenceState(int64_t pages, int64_t pageBytes, int32_t sequences,
                int64_t context, std::string whyNotMore = "");

  uint8_t *pool() const { return memory.data(); }
  int64_t pages() const { return static_cast<int64_t>(references.size()); }
  /// Number of pages that no sequence holds, kept ones too.
  int64_t freePages() const { return freeCount; }
  /// Maximum number of open sequences.
  int32_t maxSequences() const {
    return static_cast<int32_t>(sequences.size());
  }
  /// [sequence][pageTableStride()], for Context::pageTables.
  const PageId *pageTables() const { return tables.data(); }
  int64_t pageTableStride() const { return stride; }

  /// Opens an empty sequence. Throws Error if all are open.
  SequenceId open();
  /// Opens a sequence with the first `length` positions of `parent`. Full pages
  /// are shared; a partial one is copied. Throws Error if `parent` is shorter,
  /// or if no sequence or no page is left.
  SequenceId branch(SequenceId parent, int64_t length);
  /// Frees a sequence and the pages that no other sequence shares.
  void close(SequenceId sequence);
  bool isOpen(SequenceId sequence) const;

  /// Number of positions in a sequence.
  int64_t length(SequenceId sequence) const;
  /// Removes the positions from `length` (at most the present length) on and
  /// frees the empty pages. Copies the last page if it is partial and shared or
  /// kept; throws Error if no page is left for the copy.
  void truncate(SequenceId sequence, int64_t length);
  /// Extends a sequence to `length` positions. Changes nothing and returns
  /// PastContext or NoPage if that is not possible.
  std::optional<ErrorKind> extend(SequenceId sequence, int64_t length);

  /// The page of positions 64 * index .. 64 * index + 63 of a sequence.
  PageId page(SequenceId sequence, int64_t index) const {
    return tables[static_cast<size_t>(sequence * stride + index)];
  }
  /// Keeps a full page that a sequence holds.
  void keep(PageId page) { kept[static_cast<size_t>(page)] = 1; }
  /// Whether the page has been kept and not taken since then.
  bool isKept(PageId page) const { return kept[static_cast<size_t>(page)]; }
  /// Appends the 64 positions of a kept page to a sequence of full pages.
  void share(SequenceId sequence, PageId page);
  /// Makes a sequence use the kept `page`, which must have the same content,
  /// as its page `index`.
  void merge(SequenceId sequence, int64_t index, PageId page);

  /// Why no page is free.
  std::string describeFull() const;

private:
  struct Sequence {
    bool open = false;
    int64_t length = 0;
  };

  PageId *table(SequenceId sequence) {
    return tables.data() + sequence * stride;
  }
  /// Takes the first page of the free list. Throws Error if there is none.
  PageId takePage();
  /// Counts one more sequence that holds a page.
  void holdPage(PageId page);
  void releasePage(PageId page);
  void unlink(PageId page);
  /// Links a page into the free list before `next`.
  void linkBefore(PageId page, PageId next);
  /// Takes a page and copies `page` into it.
  PageId copyPage(PageId page);
  void checkOpen(SequenceId sequence) const;
  void checkLength(SequenceId sequence, int64_t length) const;

  std::string whyNotMore;
  int64_t bytesOfPage;
  int64_t context;
  int64_t stride;
  Mapping memory;
  std::vector<PageId> tables;
  std::vector<Sequence> sequences;
  /// Number of sequences that hold each page.
  std::vector<int32_t> references;
  std::vector<uint8_t> kept;
  /// The free pages as a ring; entry pages() is its head. The next page to take
  /// is first.
  std::vector<PageId> nextFree, previousFree;
  int64_t freeCount = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SEQUENCESTATE_H
