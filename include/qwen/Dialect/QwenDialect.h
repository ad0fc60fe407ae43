//===- QwenDialect.h - The qwen dialect -------------------------*- C++ -*-===//
//
// The dialect's classes, generated from the .td files of this folder.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_DIALECT_QWENDIALECT_H
#define QWEN_DIALECT_QWENDIALECT_H

#include "qwen/ABI/Blocks.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "qwen/Dialect/QwenDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "qwen/Dialect/QwenAttributes.h.inc"

namespace qwen {
/// Whether `type` is tensor<?xi32>.
bool isTokenIntegers(mlir::Type type);
/// Whether `type` is tensor<?xNxf32>, N from 1 to kMaxDimension.
bool isFloatActivations(mlir::Type type);
/// Whether `type` is tensor<?xNxi8, #qwen.blocks<128>>, N likewise.
bool isQuantizedActivations(mlir::Type type);

/// Rows and weights have dimensions up to this, so that no product of two of
/// them and a few bytes overflows.
inline constexpr int64_t kMaxDimension = int64_t{1} << 28;

/// A model has up to this many layers, as in the manifest.
inline constexpr int64_t kMaxLayers = 65536;

/// The paged KV cache as a side-effect resource.
struct KvCacheResource : mlir::SideEffects::Resource::Base<KvCacheResource> {
  mlir::StringRef getName() final { return "KvCache"; }
};

/// Module attribute: the stage that the module has reached ("graph",
/// "quantized", "packed" or "calls").
inline constexpr char kStageAttr[] = "qwen.stage";
/// Module attribute: dictionary of the model's facts, as in the manifest's
/// "model" (docs/artifact.md).
inline constexpr char kModelAttr[] = "qwen.model";
/// Module attribute: format of the KV cache, a KvFormatAttr.
inline constexpr char kKvFormatAttr[] = "qwen.kv_format";
/// Module attributes: most tokens and output rows of one call, i64.
inline constexpr char kMaxTokensAttr[] = "qwen.max_tokens";
inline constexpr char kMaxRowsAttr[] = "qwen.max_rows";
/// Module attributes set by the packer and planner: bytes, i64.
inline constexpr char kWeightBytesAttr[] = "qwen.weight_bytes";
inline constexpr char kArenaBytesAttr[] = "qwen.arena_bytes";
/// Module attribute: the target's CPU features by name, an array of strings.
inline constexpr char kTargetFeaturesAttr[] = "qwen.target_features";
/// Name of the model's function.
inline constexpr char kForwardName[] = "forward";
} // namespace qwen

#define GET_OP_CLASSES
#include "qwen/Dialect/QwenOps.h.inc"

#endif // QWEN_DIALECT_QWENDIALECT_H
