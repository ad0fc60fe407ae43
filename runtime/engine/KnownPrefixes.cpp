//===- KnownPrefixes.cpp - Prompts that a scheduler has had ---------------===//

#include "engine/KnownPrefixes.h"

#include "qwen/ABI/Blocks.h"

#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

std::vector<uint64_t> qwen::pageHashes(std::span<const int32_t> ids,
                                       const RootRef &root) {
  std::vector<uint64_t> hashes;
  // Two roots have different addresses as long as they live.
  uint64_t hash = reinterpret_cast<uintptr_t>(root.get());
  while (std::ssize(ids) > kPageTokens) {
    hash =
        XXH3_64bits_withSeed(ids.data(), kPageTokens * sizeof(int32_t), hash);
    hashes.push_back(hash);
    ids = ids.subspan(kPageTokens);
  }
  return hashes;
}

size_t KnownPrefixes::find(std::span<const uint64_t> pages) const {
  size_t known = 0;
  while (known < pages.size() &&
         (young.contains(pages[known]) || old.contains(pages[known])))
    ++known;
  return known;
}

void KnownPrefixes::add(std::span<const uint64_t> pages) {
  for (uint64_t page : pages) {
    young.insert(page);
    if (young.size() >= most)
      old = std::exchange(young, {});
  }
}
