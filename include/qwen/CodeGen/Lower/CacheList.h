//===- CacheList.h - The caches that the ops of a model use -----*- C++ -*-===//

#ifndef QWEN_CODEGEN_LOWER_CACHELIST_H
#define QWEN_CODEGEN_LOWER_CACHELIST_H

#include "qwen/Dialect/QwenDialect.h"

namespace qwen {

/// Collects the caches of programs from their ops: uses with the same name,
/// kind, bytes and format, in any layers, form one cache.
class CacheList {
public:
  /// Adds the cache that `op` uses, if any. Fails and reports an error if an op
  /// before it has other bytes or another format in the same cache and layer.
  mlir::LogicalResult add(ForwardOp op);

  /// The place of the cache of an op that was added, after the last `add`.
  CachePlace placeOf(ForwardOp op) const;

  /// The list as kCachesAttr has it.
  mlir::ArrayAttr toAttribute(mlir::MLIRContext *context) const;

private:
  std::vector<CacheInfo> caches;
};

/// The caches that kCachesAttr of a program of stage "calls" names.
std::vector<CacheInfo> cachesOf(mlir::func::FuncOp program);

} // namespace qwen

#endif // QWEN_CODEGEN_LOWER_CACHELIST_H
