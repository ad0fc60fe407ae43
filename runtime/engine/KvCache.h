//===- KvCache.h - Paged cache of keys and values ---------------*- C++ -*-===//
//
// A pool of pages of 64 positions, and a page table for each sequence.
// Sequences may share pages: a branch starts with the pages of another sequence
// and copies only the last one if it is partial.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_KVCACHE_H
#define QWEN_RUNTIME_ENGINE_KVCACHE_H

#include "artifact/File.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen {

/// Number of a sequence in a KvCache: the index of its page table.
using SequenceId = int32_t;

/// Allocates nothing after its construction. A page takes memory from its first
/// use on.
class KvCache {
public:
  /// Makes a pool of `pages` pages of `pageBytes`, for at most `sequences` open
  /// sequences of at most `context` positions. `whyNotMore` ends the Error of a
  /// full cache. Throws Error if there is no address space for the pool.
  KvCache(int64_t pages, int64_t pageBytes, int32_t sequences, int64_t context,
          std::string whyNotMore = "");

  uint8_t *pool() const { return memory.data(); }
  int64_t pages() const { return static_cast<int64_t>(references.size()); }
  int64_t freePages() const { return static_cast<int64_t>(freeList.size()); }
  /// [sequence][pageTableStride()], for Context::pageTables.
  const int32_t *pageTables() const { return tables.data(); }
  int64_t pageTableStride() const { return stride; }

  /// Opens an empty sequence. Throws Error if all are open.
  SequenceId open();
  /// Opens a sequence with the positions of `parent`. Full pages are shared; a
  /// partial one is copied. Throws Error if no sequence or no page is left.
  SequenceId branch(SequenceId parent);
  /// Frees a sequence and the pages that no other sequence shares.
  void close(SequenceId sequence);
  bool isOpen(SequenceId sequence) const;

  /// Number of positions in a sequence.
  int64_t length(SequenceId sequence) const;
  /// Removes the positions from `length` (at most the present length) on and
  /// frees the empty pages. Copies the last page if it is partial and shared.
  void truncate(SequenceId sequence, int64_t length);
  /// Extends a sequence to `length` positions. Throws Error and changes nothing
  /// if `length` is past the context or too few pages are free.
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
  /// Takes a page and copies `page` into it.
  int32_t copyPage(int32_t page);
  void checkOpen(SequenceId sequence) const;

  std::string whyNotMore;
  int64_t bytesOfPage;
  int64_t context;
  int64_t stride;
  Mapping memory;
  std::vector<int32_t> tables;
  std::vector<Sequence> sequences;
  /// Number of sequences that hold each page.
  std::vector<int32_t> references;
  /// Pages that no sequence holds; the next one to take is last.
  std::vector<int32_t> freeList;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_KVCACHE_H
