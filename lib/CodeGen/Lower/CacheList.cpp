//===- CacheList.cpp - The caches that the ops of a model use -------------===//

#include "qwen/CodeGen/Lower/CacheList.h"

#include "qwen/ABI/ArtifactFormat.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace qwen;

/// The name of the cache that `op` uses, CacheInfo::name.
static std::string cacheNameOf(ForwardOp op, const CacheUse &use) {
  auto program = op->getParentOfType<func::FuncOp>();
  const bool isOwn = program->hasAttr(kOwnCachesAttr);
  return (isOwn ? program.getSymName().str() + "." : "") + use.name.str();
}

static bool hasLayer(const CacheInfo &cache, const std::string &name,
                     const CacheUse &use) {
  return cache.name == name && llvm::is_contained(cache.layers, use.layer);
}

/// CacheInfo::stepBack of the caches of a program.
static int64_t stepBackOf(func::FuncOp program, CacheKind kind) {
  auto stepBack = program->getAttrOfType<IntegerAttr>(kStepBackAttr);
  return stepBack && kind == CacheKind::Fixed ? stepBack.getInt() : 0;
}

/// The format of keys and values, for errors.
static std::string formatText(const std::optional<KvFormat> &format) {
  return format ? " of " + std::string(kvFormatName(*format)) : "";
}

LogicalResult CacheList::add(ForwardOp op) {
  const std::optional<CacheUse> use = op.getCacheUse();
  if (!use)
    return success();
  const int64_t bytes =
      use->kind == CacheKind::Paged
          ? use->bytes
          : alignTo(use->bytes, static_cast<int64_t>(kTensorAlign));
  const int64_t stepBack =
      stepBackOf(op->getParentOfType<func::FuncOp>(), use->kind);
  const std::string name = cacheNameOf(op, *use);
  for (const CacheInfo &cache : caches) {
    if (!hasLayer(cache, name, *use))
      continue;
    if (cache.kind != use->kind || cache.layerBytes != bytes ||
        cache.format != use->format)
      return op->emitOpError()
             << "has " << bytes << " bytes" << formatText(use->format)
             << " in the " << cacheKindName(use->kind) << " " << use->name
             << " cache of layer " << use->layer << " when an op before it has "
             << cache.layerBytes << formatText(cache.format) << " in a "
             << cacheKindName(cache.kind) << " one";
    if (cache.stepBack != stepBack)
      return op->emitOpError()
             << "steps back " << stepBack << " tokens in the " << use->name
             << " cache of layer " << use->layer
             << " when an op before it steps back " << cache.stepBack;
  }
  mergeCache(caches,
             {name, use->kind, bytes, {use->layer}, stepBack, use->format});
  return success();
}

CachePlace CacheList::placeOf(ForwardOp op) const {
  const std::optional<CacheUse> use = op.getCacheUse();
  for (auto [index, cache] : llvm::enumerate(caches))
    if (use && hasLayer(cache, cacheNameOf(op, *use), *use))
      return {CacheId(static_cast<int64_t>(index)), Bytes(cache.stride()),
              CacheOffset((llvm::find(cache.layers, use->layer) -
                           cache.layers.begin()) *
                          cache.layerStride()),
              Tokens(cache.stepBack)};
  return {};
}

ArrayAttr CacheList::toAttribute(MLIRContext *context) const {
  Builder builder(context);
  SmallVector<Attribute> list;
  for (const CacheInfo &cache : caches) {
    NamedAttrList fields;
    fields.append("name", builder.getStringAttr(cache.name));
    fields.append("kind", builder.getStringAttr(cacheKindName(cache.kind)));
    if (cache.format)
      fields.append("format",
                    builder.getStringAttr(kvFormatName(*cache.format)));
    fields.append("layer_bytes", builder.getI64IntegerAttr(cache.layerBytes));
    fields.append("layers", builder.getDenseI64ArrayAttr(cache.layers));
    list.push_back(fields.getDictionary(context));
  }
  return builder.getArrayAttr(list);
}

std::vector<CacheInfo> qwen::cachesOf(func::FuncOp program) {
  std::vector<CacheInfo> caches;
  for (auto cache : program->getAttrOfType<ArrayAttr>(kCachesAttr)
                        .getAsRange<DictionaryAttr>()) {
    const CacheKind kind =
        *parseCacheKind(cache.getAs<StringAttr>("kind").getValue());
    const auto format = cache.getAs<StringAttr>("format");
    caches.push_back(
        {cache.getAs<StringAttr>("name").str(), kind,
         cache.getAs<IntegerAttr>("layer_bytes").getInt(),
         cache.getAs<DenseI64ArrayAttr>("layers").asArrayRef().vec(),
         stepBackOf(program, kind),
         format ? parseKvFormat(format.getValue()) : std::nullopt});
  }
  return caches;
}
