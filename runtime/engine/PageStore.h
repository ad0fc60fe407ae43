//===- PageStore.h - Pages and snapshots outside of memory ------*- C++ -*-===//
//
// What the prefix cache has kept may outlive the process, or serve another one
// with the same artifact.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_PAGESTORE_H
#define QWEN_RUNTIME_ENGINE_PAGESTORE_H

#include "engine/Prompt.h"

#include <span>

namespace qwen {

/// Stands for a PageContent: HMAC-SHA-256 (RFC 2104), where bytes leave the
/// process.
using PageName = std::array<uint8_t, 32>;

/// A page with all that comes before it, or the fixed state there.
struct PageContent {
  const Root &root;
  /// The name of the page before it; zeros if there is none.
  const PageName &before;
  /// Those that overlap the page.
  std::span<const Medium> media;
  /// The tokens of the page. None: the state behind the page `before`.
  std::span<const int32_t> ids;
};

/// Bytes of pages and snapshots by their names. The thread of the prefix cache
/// calls all functions, in its steps: they must not block, and throw nothing.
class PageStore {
public:
  virtual ~PageStore() = default;

  /// Different contents must have different names: nobody compares them again.
  virtual PageName nameOf(const PageContent &content) const = 0;
  virtual bool has(const PageName &name) const = 0;
  /// Returns false if the store has lost the bytes, or has others than those
  /// that were written. `has` is false from then on.
  virtual bool read(const PageName &name, std::span<uint8_t> bytes) = 0;
  virtual void write(const PageName &name, std::span<const uint8_t> bytes) = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_PAGESTORE_H
