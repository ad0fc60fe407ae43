//===- Caches.cpp - The caches that the ops of a model use ----------------===//

#include "qwen/CodeGen/Lower/Caches.h"

#include "qwen/ABI/Artifact.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace qwen;

static bool hasLayer(const CacheInfo &cache, const CacheUse &use) {
  return cache.name == use.name && llvm::is_contained(cache.layers, use.layer);
}

LogicalResult CacheList::add(ForwardOp op, KvFormat kv) {
  const std::optional<CacheUse> use = op.getCacheUse();
  if (!use)
    return success();
  const int64_t bytes =
      use->kind == CacheKind::Paged
          ? use->size * kvElementBytes(kv)
          : alignTo(use->size, static_cast<int64_t>(kTensorAlign));
  for (const CacheInfo &cache : caches) {
    if (!hasLayer(cache, *use) ||
        (cache.kind == use->kind && cache.layerBytes == bytes))
      continue;
    return op->emitOpError()
           << "has " << bytes << " bytes in the " << cacheKindName(use->kind)
           << " " << use->name << " cache of layer " << use->layer
           << " when an op before it has " << cache.layerBytes << " in a "
           << cacheKindName(cache.kind) << " one";
  }
  mergeCache(caches, {use->name.str(), use->kind, bytes, {use->layer}});
  return success();
}

CachePlace CacheList::placeOf(ForwardOp op) const {
  const std::optional<CacheUse> use = op.getCacheUse();
  for (auto [index, cache] : llvm::enumerate(caches))
    if (use && hasLayer(cache, *use))
      return {CacheId(static_cast<int64_t>(index)), Bytes(cache.stride()),
              CacheOffset((llvm::find(cache.layers, use->layer) -
                           cache.layers.begin()) *
                          cache.layerStride())};
  return {};
}

ArrayAttr CacheList::toAttribute(MLIRContext *context) const {
  Builder builder(context);
  SmallVector<Attribute> list;
  for (const CacheInfo &cache : caches)
    list.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("name", builder.getStringAttr(cache.name)),
         builder.getNamedAttr("kind",
                              builder.getStringAttr(cacheKindName(cache.kind))),
         builder.getNamedAttr("layer_bytes",
                              builder.getI64IntegerAttr(cache.layerBytes)),
         builder.getNamedAttr("layers",
                              builder.getDenseI64ArrayAttr(cache.layers))}));
  return builder.getArrayAttr(list);
}

std::vector<CacheInfo> qwen::cachesOf(func::FuncOp program) {
  std::vector<CacheInfo> caches;
  for (auto cache : program->getAttrOfType<ArrayAttr>(kCachesAttr)
                        .getAsRange<DictionaryAttr>())
    caches.push_back(
        {cache.getAs<StringAttr>("name").str(),
         *parseCacheKind(cache.getAs<StringAttr>("kind").getValue()),
         cache.getAs<IntegerAttr>("layer_bytes").getInt(),
         cache.getAs<DenseI64ArrayAttr>("layers").asArrayRef().vec()});
  return caches;
}
