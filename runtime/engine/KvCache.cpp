//===- KvCache.cpp - Paged cache of keys and values -----------------------===//

#include "engine/KvCache.h"

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

KvCache::KvCache(int64_t pageCount, int64_t pageBytes, int32_t sequenceCount,
                 int64_t contextSize, std::string whyNotMore)
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
  references.assign(static_cast<size_t>(pageCount), 0);
  freeList.reserve(references.size());
  for (int64_t page = pageCount; page-- > 0;)
    freeList.push_back(static_cast<int32_t>(page));
}

void KvCache::checkOpen(SequenceId sequence) const {
  if (!isOpen(sequence))
    throw Error("sequence " + std::to_string(sequence) + " is not open");
}

bool KvCache::isOpen(SequenceId sequence) const {
  return sequence >= 0 && static_cast<size_t>(sequence) < sequences.size() &&
         sequences[sequence].open;
}

int64_t KvCache::length(SequenceId sequence) const {
  checkOpen(sequence);
  return sequences[sequence].length;
}

int32_t KvCache::takePage() {
  if (freeList.empty())
    throw Error("the KV cache is full: all of its " + std::to_string(pages()) +
                " pages are in use" + whyNotMore);
  const int32_t page = freeList.back();
  freeList.pop_back();
  references[page] = 1;
  return page;
}

void KvCache::releasePage(int32_t page) {
  if (--references[page] == 0)
    freeList.push_back(page);
}

int32_t KvCache::copyPage(int32_t page) {
  const int32_t copy = takePage();
  memcpy(pool() + copy * bytesOfPage, pool() + page * bytesOfPage,
         static_cast<size_t>(bytesOfPage));
  return copy;
}

SequenceId KvCache::open() {
  for (size_t i = 0; i < sequences.size(); ++i)
    if (!sequences[i].open) {
      sequences[i] = {true, 0};
      return static_cast<SequenceId>(i);
    }
  throw Error("all " + std::to_string(sequences.size()) +
              " sequences are open");
}

SequenceId KvCache::branch(SequenceId parent) {
  checkOpen(parent);
  const int64_t positions = sequences[parent].length;
  const int64_t full = positions / kPageTokens;
  const SequenceId child = open();
  int32_t *to = table(child);
  const int32_t *from = table(parent);
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
    ++references[to[i]];
  }
  sequences[child].length = positions;
  return child;
}

void KvCache::close(SequenceId sequence) {
  checkOpen(sequence);
  truncate(sequence, 0);
  sequences[sequence].open = false;
}

void KvCache::truncate(SequenceId sequence, int64_t newLength) {
  checkOpen(sequence);
  Sequence &entry = sequences[sequence];
  if (newLength < 0 || newLength > entry.length)
    throw Error("sequence " + std::to_string(sequence) + " has " +
                std::to_string(entry.length) + " positions and cannot keep " +
                std::to_string(newLength));
  int32_t *pagesOf = table(sequence);
  const int64_t kept = ceilDiv(newLength, kPageTokens);
  // This sequence will write to the rest of the page, which others still read.
  if (newLength % kPageTokens && newLength < entry.length &&
      references[pagesOf[kept - 1]] > 1) {
    const int32_t copy = copyPage(pagesOf[kept - 1]);
    releasePage(pagesOf[kept - 1]);
    pagesOf[kept - 1] = copy;
  }
  for (int64_t i = ceilDiv(entry.length, kPageTokens); i-- > kept;)
    releasePage(pagesOf[i]);
  entry.length = newLength;
}

void KvCache::extend(SequenceId sequence, int64_t newLength) {
  checkOpen(sequence);
  Sequence &entry = sequences[sequence];
  if (newLength > context)
    throw Error("sequence " + std::to_string(sequence) + " would have " +
                std::to_string(newLength) +
                " positions when the model was compiled for a context of " +
                std::to_string(context));
  const int64_t have = ceilDiv(entry.length, kPageTokens);
  const int64_t need = ceilDiv(newLength, kPageTokens);
  if (need - have > freePages())
    throw Error("the KV cache is full: sequence " + std::to_string(sequence) +
                " needs " + std::to_string(need - have) + " more pages and " +
                std::to_string(freePages()) + " of " + std::to_string(pages()) +
                " are free" + whyNotMore);
  for (int64_t i = have; i < need; ++i)
    table(sequence)[i] = takePage();
  entry.length = std::max(entry.length, newLength);
}
