//===- CacheGroups.cpp - Layers that the same programs use ----------------===//

#include "engine/CacheGroups.h"

#include <algorithm>

using namespace qwen;

/// The programs that use layer `layer` of `cache`.
static std::vector<size_t> usersOf(const CacheInfo &cache, int64_t layer,
                                   std::span<const ProgramInfo> programs) {
  if (programs.empty())
    return {0};
  std::vector<size_t> users;
  for (size_t i = 0; i < programs.size(); ++i)
    if (std::ranges::any_of(programs[i].caches, [&](const CacheInfo &own) {
          return isSameCache(own, cache) &&
                 std::ranges::count(own.layers, layer);
        }))
      users.push_back(i);
  return users;
}

std::vector<CacheGroup>
qwen::groupLayers(std::span<const CacheInfo> caches,
                  std::span<const ProgramInfo> programs) {
  std::vector<CacheGroup> groups;
  for (size_t i = 0; i < caches.size(); ++i) {
    const CacheInfo &cache = caches[i];
    int64_t offset = 0;
    for (int64_t layer : cache.layers) {
      std::vector<size_t> users = usersOf(cache, layer, programs);
      auto group = std::ranges::find(groups, users, &CacheGroup::programs);
      if (group == groups.end())
        group = groups.insert(group, {.programs = std::move(users)});
      if (cache.kind == CacheKind::Paged) {
        group->isPaged = true;
      } else {
        group->fixed.push_back({i, offset, cache.layerBytes});
      }
      offset += cache.layerStride();
    }
  }
  return groups;
}
