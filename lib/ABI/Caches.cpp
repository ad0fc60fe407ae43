//===- Caches.cpp - What a model keeps of a sequence ----------------------===//

#include "qwen/ABI/Caches.h"

#include <algorithm>

using namespace qwen;

std::string_view qwen::cacheKindName(CacheKind kind) {
  return kind == CacheKind::Paged ? "paged" : "fixed";
}

std::optional<CacheKind> qwen::parseCacheKind(std::string_view name) {
  for (CacheKind kind : {CacheKind::Paged, CacheKind::Fixed})
    if (name == cacheKindName(kind))
      return kind;
  return std::nullopt;
}

void qwen::mergeCache(std::vector<CacheInfo> &caches, const CacheInfo &cache) {
  const auto found = std::ranges::find_if(caches, [&](const CacheInfo &other) {
    return other.name == cache.name && other.kind == cache.kind &&
           other.layerBytes == cache.layerBytes;
  });
  if (found == caches.end())
    return caches.push_back(cache);
  std::vector<int64_t> layers;
  std::ranges::set_union(found->layers, cache.layers,
                         std::back_inserter(layers));
  found->layers = std::move(layers);
}

int64_t qwen::bytesOf(std::span<const CacheInfo> caches, CacheKind kind) {
  int64_t bytes = 0;
  for (const CacheInfo &cache : caches)
    if (cache.kind == kind)
      bytes += cache.bytes();
  return bytes;
}
