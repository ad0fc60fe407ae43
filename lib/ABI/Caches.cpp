//===- Caches.cpp - What a model keeps of a sequence ----------------------===//

#include "qwen/ABI/Caches.h"
#include "qwen/Support/Named.h"

#include <algorithm>
#include <map>

using namespace qwen;

std::string_view qwen::cacheKindName(CacheKind kind) {
  return kind == CacheKind::Paged ? "paged" : "fixed";
}

std::optional<CacheKind> qwen::parseCacheKind(std::string_view name) {
  constexpr CacheKind kinds[] = {CacheKind::Paged, CacheKind::Fixed};
  return findNamed(kinds, name, cacheKindName);
}

bool qwen::isSameCache(const CacheInfo &a, const CacheInfo &b) {
  return a.name == b.name && a.kind == b.kind && a.layerBytes == b.layerBytes &&
         a.stepBack == b.stepBack && a.format == b.format;
}

void qwen::mergeCache(std::vector<CacheInfo> &caches, const CacheInfo &cache) {
  const auto found = std::ranges::find_if(caches, [&](const CacheInfo &other) {
    return isSameCache(other, cache);
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

std::string qwen::describeKvFormats(std::span<const CacheInfo> caches) {
  std::map<KvFormat, size_t> layers;
  for (const CacheInfo &cache : caches)
    if (cache.format)
      layers[*cache.format] += cache.layers.size();
  if (layers.empty())
    return "none";
  if (layers.size() == 1)
    return std::string(kvFormatName(layers.begin()->first));
  std::string text;
  for (const auto &[format, count] : layers)
    text += (text.empty() ? "" : ", ") + std::string(kvFormatName(format)) +
            " in " + std::to_string(count) +
            (count == 1 ? " layer" : " layers");
  return text;
}

std::string qwen::describeStates(int64_t bytes, int64_t stepBackBytes) {
  return std::to_string(bytes) + " bytes a sequence" +
         (stepBackBytes ? ", and " + std::to_string(stepBackBytes) +
                              " more while it can step back"
                        : "");
}

int64_t qwen::stepBackBytesOf(std::span<const CacheInfo> caches) {
  int64_t bytes = 0;
  for (const CacheInfo &cache : caches)
    if (cache.kind == CacheKind::Fixed)
      bytes += cache.stepBack * cache.bytes();
  return bytes;
}
