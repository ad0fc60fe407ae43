//===- Caches.h - What a model keeps of a sequence --------------*- C++ -*-===//
//
// The compiler collects the caches of a model from its ops; the manifest lists
// them ("caches" in docs/artifact.md), and the runtime allocates them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_CACHES_H
#define QWEN_ABI_CACHES_H

#include "qwen/ABI/Blocks.h"

#include <span>
#include <string>
#include <vector>

namespace qwen {

/// Paged: bytes for each position, in pages. Fixed: bytes for each sequence,
/// which are 0 before its first position.
enum class CacheKind : uint8_t { Paged, Fixed };

/// Returns "paged" or "fixed".
std::string_view cacheKindName(CacheKind kind);
std::optional<CacheKind> parseCacheKind(std::string_view name);

/// A cache: what some layers keep under one name, in the same number of bytes.
struct CacheInfo {
  /// "kv" for keys and values.
  std::string name;
  CacheKind kind;
  /// Bytes of a layer: of a position in a paged cache, of a sequence in a fixed
  /// one (there a multiple of 64).
  int64_t layerBytes;
  /// The numbers of the layers, in ascending order, which is their order in a
  /// page or in the bytes of a sequence.
  std::vector<int64_t> layers;

  /// Bytes of all layers: of a position or of a sequence.
  int64_t bytes() const {
    return layerBytes * static_cast<int64_t>(layers.size());
  }
  /// Bytes from one layer to the next in a page or in the bytes of a sequence.
  int64_t layerStride() const {
    return kind == CacheKind::Paged ? layerBytes * kPageTokens : layerBytes;
  }
  /// Bytes from one page or one sequence to the next.
  int64_t stride() const {
    return layerStride() * static_cast<int64_t>(layers.size());
  }
};

/// Adds the layers of `cache` to the one of `caches` with the same name, kind
/// and bytes, or the cache itself. So the caches of several programs become
/// those of Context::caches.
void mergeCache(std::vector<CacheInfo> &caches, const CacheInfo &cache);

/// Bytes of the caches of one kind: of a position or of a sequence.
int64_t bytesOf(std::span<const CacheInfo> caches, CacheKind kind);

} // namespace qwen

#endif // QWEN_ABI_CACHES_H
