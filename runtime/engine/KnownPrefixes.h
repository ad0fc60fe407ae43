//===- KnownPrefixes.h - Prompts that a scheduler has had -------*- C++ -*-===//
//
// A prefix cache belongs to the thread of its scheduler. What chooses among
// several schedulers keeps hashes of the prompts that it gave each of them. A
// wrong guess costs time and changes no answer.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_KNOWNPREFIXES_H
#define QWEN_RUNTIME_ENGINE_KNOWNPREFIXES_H

#include "engine/Prompt.h"

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

namespace qwen {

/// A hash of each full page of a prompt with all before it, and with the root.
/// The last token belongs to no page, because its logits are needed.
std::vector<uint64_t> pageHashes(std::span<const int32_t> ids,
                                 const RootRef &root);

/// Hashes of pages, the last ones that were added or found.
class KnownPrefixes {
public:
  /// Knows the last `pages` pages and at most as many before.
  explicit KnownPrefixes(size_t pages) : most(pages) {}

  /// Number of pages at the front that are known.
  size_t find(std::span<const uint64_t> pages) const;
  void add(std::span<const uint64_t> pages);

private:
  const size_t most;
  /// `young` becomes `old` when it is full.
  std::unordered_set<uint64_t> young, old;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_KNOWNPREFIXES_H
