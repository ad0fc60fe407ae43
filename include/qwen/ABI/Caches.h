//===- Caches.h - What a model keeps of a sequence --------------*- C++ -*-===//
//
// The compiler collects the caches of a model from its ops; the manifest lists
// them ("caches" in docs/artifact.md), and the runtime allocates them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_CACHES_H
#define QWEN_ABI_CACHES_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KvFormats.h"

#include <span>
#include <string>
#include <vector>

namespace qwen {

/// The most tokens that the fixed caches of a program can step back.
inline constexpr int64_t kMostStepBack = 1024;

/// Paged: bytes for each position, in pages. Fixed: bytes for each sequence,
/// which are 0 before its first position.
enum class CacheKind : uint8_t { Paged, Fixed };

/// Marks a program, an MLIR function, that may run other sequences than the
/// programs before it: its caches and their caches share no page.
inline constexpr char kOwnCachesAttr[] = "qwen.own_caches";

/// Returns "paged" or "fixed".
std::string_view cacheKindName(CacheKind kind);
std::optional<CacheKind> parseCacheKind(std::string_view name);

/// A cache: what some layers keep under one name, in the same number of bytes.
struct CacheInfo {
  /// "kv" for keys and values. Behind a program's name and a dot if it is that
  /// program's alone: "mtp.kv".
  std::string name;
  CacheKind kind;
  /// Bytes of a layer: of a position in a paged cache, of a state in a fixed
  /// one (there a multiple of 64).
  int64_t layerBytes;
  /// The numbers of the layers, in ascending order, which is their order in a
  /// page or in a state.
  std::vector<int64_t> layers;
  /// How many states before the last one a sequence can keep in a fixed cache.
  int64_t stepBack = 0;
  /// The format of keys and values, in a paged cache.
  std::optional<KvFormat> format = {};

  /// States that a sequence can have in a fixed cache.
  int64_t states() const { return stepBack + 1; }
  /// Bytes of all layers: of a position or of a state.
  int64_t bytes() const {
    return layerBytes * static_cast<int64_t>(layers.size());
  }
  /// Bytes from one layer to the next in a page or in a state.
  int64_t layerStride() const {
    return kind == CacheKind::Paged ? layerBytes * kPageTokens : layerBytes;
  }
  /// Bytes from one page or one state to the next.
  int64_t stride() const {
    return layerStride() * static_cast<int64_t>(layers.size());
  }
};

/// Whether both have the same name, kind, bytes, states and format, so that
/// they are layers of one cache.
bool isSameCache(const CacheInfo &a, const CacheInfo &b);

/// Adds the layers of `cache` to the one of `caches` that is the same, or the
/// cache itself. So Context::caches gets the caches of several programs.
void mergeCache(std::vector<CacheInfo> &caches, const CacheInfo &cache);

/// Bytes of the caches of one kind: of a position or of a state.
int64_t bytesOf(std::span<const CacheInfo> caches, CacheKind kind);

/// The formats of keys and values: "f16", "f32 in 1 layer, f16 in 23
/// layers", or "none" without a paged cache.
std::string describeKvFormats(std::span<const CacheInfo> caches);

/// Bytes of the states that a sequence keeps while it can step back, beside its
/// last one.
int64_t stepBackBytesOf(std::span<const CacheInfo> caches);

/// The bytes of a state and of the others: "20 bytes a sequence, and 60 more
/// while it can step back".
std::string describeStates(int64_t bytes, int64_t stepBackBytes);

} // namespace qwen

#endif // QWEN_ABI_CACHES_H
