//===- CacheGroups.h - Layers that the same programs use --------*- C++ -*-===//
//
// Programs may share layers of caches: one that has the first half of the
// layers goes on where `forward` ended, and a draft layer has keys and values
// of its own. The layers that the same programs use form a group: a sequence
// has as many positions in one as in the other.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_CACHEGROUPS_H
#define QWEN_RUNTIME_ENGINE_CACHEGROUPS_H

#include "artifact/Manifest.h"

#include <span>
#include <vector>

namespace qwen {

struct CacheGroup {
  /// A layer of a fixed cache: the index of the cache, and its bytes from
  /// `offset` of a state on.
  struct FixedLayer {
    size_t cache;
    int64_t offset, bytes;
  };

  /// Indices of the programs, in ascending order.
  std::vector<size_t> programs;
  bool isPaged = false;
  std::vector<FixedLayer> fixed = {};
};

/// The groups of the layers of `caches`, which all `programs` have together
/// (mergeCache), or one program if the list is empty.
std::vector<CacheGroup> groupLayers(std::span<const CacheInfo> caches,
                                    std::span<const ProgramInfo> programs);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_CACHEGROUPS_H
