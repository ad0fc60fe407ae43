//===- KvCache.h - Paged cache of keys and values ---------------*- C++ -*-===//
//
// A pool of pages of 64 positions, and for each sequence the table of its
// pages. Sequences may share pages: a branch starts with those of another
// sequence and copies only the last, partial one.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_KVCACHE_H
#define QWEN_RUNTIME_ENGINE_KVCACHE_H

#include "artifact/File.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen {

/// Number of a sequence of a KvCache; its row in the page tables.
using SequenceId = int32_t;

/// Allocates nothing after its construction; the system gives memory to a page
/// when it is first written.
class KvCache {
public:
  /// A pool of `pages` pages of `pageBytes`, for at most `sequences` open
  /// sequences of at most `context` positions. `whyNotMore` ends the Error of
  /// a full cache. Throws Error where there is no address space for it.
  KvCache(int64_t pages, int64_t pageBytes, int32_t sequences, int64_t context,
          std::string whyNotMore = "");

  uint8_t *pool() const { return memory.data(); }
  int64_t pages() const { return static_cast<int64_t>(references.size()); }
  int64_t freePages() const { return static_cast<int64_t>(freeList.size()); }
  /// [sequence][pageTableStride()], for Context::pageTables.
  const int32_t *pageTables() const { return tables.data(); }
  int64_t pageTableStride() const { return stride; }

  /// Opens an empty sequence. Throws Error where all are open.
  SequenceId open();
  /// Opens a sequence with the positions of `parent`. Full pages are shared; a
  /// partial one is copied. Throws Error where sequences or pages run out.
  SequenceId branch(SequenceId parent);
  /// Gives back a sequence and the pages that no other one shares.
  void close(SequenceId sequence);
  bool isOpen(SequenceId sequence) const;

  /// Positions of a sequence that have been written.
  int64_t length(SequenceId sequence) const;
  /// Forgets the positions at and past `length` (at most the present length),
  /// and gives back the pages that are empty then. A page that is now partial
  /// and shared is copied.
  void truncate(SequenceId sequence, int64_t length);
  /// Makes room for positions up to `length`, which the sequence then has.
  /// Throws Error where `length` is past the context or pages run out; the
  /// sequence is then as before.
  void extend(SequenceId sequence, int64_t length);

private:
  struct Sequence {
    bool open = false;
    int64_t length = 0;
  };

  int32_t *table(SequenceId sequence) {
    return tables.data() + sequence * stride;
  }
  int32_t takePage();
  void releasePage(int32_t page);
  /// A page of one's own with the contents of `page`.
  int32_t copyPage(int32_t page);
  void checkOpen(SequenceId sequence) const;

  std::string whyNotMore;
  int64_t bytesOfPage;
  int64_t context;
  int64_t stride;
  Mapping memory;
  std::vector<int32_t> tables;
  std::vector<Sequence> sequences;
  /// Sequences that hold each page.
  std::vector<int32_t> references;
  /// Pages that none holds; the next one to take is last.
  std::vector<int32_t> freeList;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_KVCACHE_H
