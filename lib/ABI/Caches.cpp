//===- Caches.cpp - What a model keeps of a sequence ----------------------===//

#include "qwen/ABI/Caches.h"

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

int64_t qwen::bytesOf(std::span<const CacheInfo> caches, CacheKind kind) {
  int64_t bytes = 0;
  for (const CacheInfo &cache : caches)
    if (cache.kind == kind)
      bytes += cache.bytes();
  return bytes;
}
