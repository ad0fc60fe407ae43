//===- PageEvents.h - Hears which pages prefix caches keep ------*- C++ -*-===//
//
// A router that knows the pages of each server sends a prompt to the one that
// has its beginning.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_PAGEEVENTS_H
#define QWEN_RUNTIME_ENGINE_PAGEEVENTS_H

#include "engine/Prompt.h"

#include <cstdint>
#include <span>

namespace qwen {

/// A page that a prefix cache has begun to keep. SequenceState gives the serial
/// numbers.
struct StoredPage {
  uint64_t serial;
  /// The page before it; 0 if there is none.
  uint64_t parent;
  const Identity &identity;
  /// Position of the first token.
  int64_t first;
  /// The tokens of a whole page.
  std::span<const int32_t> ids;
};

/// The thread of each prefix cache calls the functions in its steps: they must
/// not block.
class PageEvents {
public:
  virtual ~PageEvents() = default;

  /// A number for a new cache, because caches count pages alike.
  virtual uint64_t addCache() = 0;
  virtual void store(uint64_t cache, const StoredPage &page) noexcept = 0;
  /// The cache finds a page no longer, nor those that follow it.
  virtual void remove(uint64_t cache, uint64_t serial) noexcept = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_PAGEEVENTS_H
