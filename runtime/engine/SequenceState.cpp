//===- SequenceState.cpp - Paged cache of keys and values -----------------===//

#include "engine/SequenceState.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/Error.h"

#include <cstring>
#include <string>
#include <sys/mman.h>

using namespace qwen;

static size_t poolBytes(int64_t pages, int64_t pageBytes) {
  int64_t bytes;
  if (pages < 1 || pages > INT32_MAX ||
      __builtin_mul_overflow(pages, pageBytes, &bytes))
    throw Error("a KV cache of " + std::to_string(pages) +
                " pages is not possible");
  return static_cast<size_t>(bytes);
}

SequenceState::SequenceState(int64_t pageCount, int64_t pageBytes,
                             int32_t sequenceCount, int64_t contextSize,
                             std::string whyNotMore)
    : whyNotMore(std::move(whyNotMore)), bytesOfPage(pageBytes),
      context(contextSize), stride(ceilDiv(contextSize, kPageTokens)),
      memory(Mapping::memory(poolBytes(pageCount, pageBytes), "the KV cache")) {
  if (sequenceCount < 1)
    throw Error("a KV cache needs at least one sequence");
  // A KV head's part of a page is only a few KiB, and its part of the next page
  // is far away. Without huge memory pages this advice has no effect.
  madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
  tables.assign(static_cast<size_t>(sequenceCount * stride), 0);
  sequences.resize(static_cast<size_t>(sequenceCount));
  const auto count = static_cast<size_t>(pageCount);
  references.assign(count, 0);
  kept.assign(count, 0);
  nextFree.resize(count + 1);
  previousFree.resize(count + 1);
  const auto head = static_cast<PageId>(pageCount);
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
  kept[page] = 0;
  holdPage(page);
  return page;
}

void SequenceState::holdPage(PageId page) {
  if (references[page]++ == 0)
    unlink(page);
}

void SequenceState::releasePage(PageId page) {
  if (--references[page] == 0)
    linkBefore(page,
               kept[page] ? static_cast<PageId>(pages()) : nextFree.back());
}

PageId SequenceState::copyPage(PageId page) {
  const PageId copy = takePage();
  memcpy(pool() + copy * bytesOfPage, pool() + page * bytesOfPage,
         static_cast<size_t>(bytesOfPage));
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
  return child;
}

void SequenceState::close(SequenceId sequence) {
  truncate(sequence, 0);
  sequences[sequence].open = false;
}

void SequenceState::truncate(SequenceId sequence, int64_t newLength) {
  checkLength(sequence, newLength);
  Sequence &entry = sequences[sequence];
  PageId *pagesOf = table(sequence);
  const int64_t last = newLength / kPageTokens;
  // This sequence will write to the rest of the page, which others still read.
  if (newLength % kPageTokens && newLength < entry.length &&
      (references[pagesOf[last]] > 1 || isKept(pagesOf[last]))) {
    const PageId copy = copyPage(pagesOf[last]);
    releasePage(pagesOf[last]);
    pagesOf[last] = copy;
  }
  // The last page becomes free first, so that a kept page is taken before the
  // pages that it follows.
  for (int64_t i = ceilDiv(entry.length, kPageTokens);
       i-- > ceilDiv(newLength, kPageTokens);)
    releasePage(pagesOf[i]);
  entry.length = newLength;
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
  entry.length = std::max(entry.length, newLength);
  return std::nullopt;
}

void SequenceState::share(SequenceId sequence, PageId page) {
  Sequence &entry = sequences[sequence];
  holdPage(page);
  table(sequence)[entry.length / kPageTokens] = page;
  entry.length += kPageTokens;
}

void SequenceState::merge(SequenceId sequence, int64_t index, PageId page) {
  PageId &entry = table(sequence)[index];
  holdPage(page);
  releasePage(entry);
  entry = page;
}
