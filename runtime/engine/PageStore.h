//===- PageStore.h - Pages and snapshots outside of memory ------*- C++ -*-===//
//
// What the prefix cache has kept may outlive the process, or serve another one
// with the same artifact.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_PAGESTORE_H
#define QWEN_RUNTIME_ENGINE_PAGESTORE_H

#include "engine/Prompt.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace qwen {

/// Stands for a PageContent: HMAC-SHA-256 (RFC 2104), where bytes leave the
/// process.
using PageName = std::array<uint8_t, 32>;

/// A page with all that comes before it, or the fixed state behind it.
struct PageContent {
  const Root &root;
  /// The name of the page before it; zeros if there is none.
  const PageName &before;
  /// Those that overlap the tokens.
  std::span<const Medium> media;
  /// The tokens of a page. Fewer: the state behind them, and behind the page
  /// `before`.
  std::span<const int32_t> ids;
};

/// Places of the bytes of a page or a snapshot, in order.
using PageParts = std::span<const std::span<uint8_t>>;

/// Bytes of all parts.
inline size_t bytesOf(PageParts parts) {
  size_t bytes = 0;
  for (const std::span<uint8_t> part : parts)
    bytes += part.size();
  return bytes;
}

/// Fills the parts with `bytes`, of which there are bytesOf(parts).
inline void copyToParts(std::span<const uint8_t> bytes, PageParts parts) {
  for (const std::span<uint8_t> part : parts) {
    std::ranges::copy(bytes.first(part.size()), part.begin());
    bytes = bytes.subspan(part.size());
  }
}

/// Numbers of pages and snapshots of one artifact.
struct StoreCounts {
  /// Pages and snapshots that went to disk, and their bytes.
  int64_t written = 0, writtenBytes = 0;
  /// Pages and snapshots that `read` returned, their bytes, and their tokens,
  /// which need not run.
  int64_t read = 0, readBytes = 0, readTokens = 0;
  /// Calls of `read` that found the file missing, damaged or of another
  /// content.
  int64_t lost = 0;
  /// Calls of `write` that found the queue full.
  int64_t dropped = 0;
  /// Pages and snapshots that waited when a fault ended the writing.
  int64_t failed = 0;
};

/// What a store has now, of all artifacts.
struct StoreSize {
  /// Bytes on disk, and in memory until they are written.
  int64_t bytes = 0, waitingBytes = 0;
};

/// Bytes of pages and snapshots by their names. The prefix cache calls all
/// functions but the last two, in its steps: but for `read`, they must not
/// block, and they throw nothing but std::bad_alloc. It calls `has`,
/// `readAhead` and `read` on several threads at the same time.
class PageStore {
public:
  virtual ~PageStore() = default;

  /// Different contents have different names, but for chance: 2^-128.
  virtual PageName nameOf(const PageContent &content) const = 0;
  virtual bool has(const PageName &name) const = 0;
  /// The numbers of tokens behind the page `before` at which the store may have
  /// states: bit i stands for i tokens, fewer than a page has.
  virtual uint64_t statesBehind(const PageName &before) const = 0;
  /// `read` will soon be called with the name.
  virtual void readAhead(const PageName & /*name*/) {}
  /// Fills `parts` with the bytes of `content`, which has the name, one part
  /// after another. Returns false if the store has lost the bytes or finds
  /// damage: `has` is false from then on, and the parts have any bytes.
  virtual bool read(const PageName &name, const PageContent &content,
                    PageParts parts) = 0;
  virtual void write(const PageName &name, const PageContent &content,
                     std::span<const uint8_t> bytes) = 0;
  /// The pages of a sequence from the first on, and a state, have been of use.
  virtual void use(std::span<const PageName> /*names*/) {}

  // All threads may call these.

  virtual StoreCounts counts(const std::string & /*artifact*/) const {
    return {};
  }
  virtual StoreSize size() const { return {}; }
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_PAGESTORE_H
