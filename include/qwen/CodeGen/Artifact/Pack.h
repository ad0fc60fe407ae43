//===- Pack.h - The weight image --------------------------------*- C++ -*-===//
//
// Writes the weights in their final layout, panel by panel from the mapped
// checkpoint, with all cores and little memory.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_ARTIFACT_PACK_H
#define QWEN_CODEGEN_ARTIFACT_PACK_H

#include "qwen/Import/Checkpoint/Safetensors.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <functional>
#include <span>

namespace qwen {

/// Takes `bytes` at `offset` of the image. Called from several threads at once.
/// Throws Error.
using WriteFn =
    std::function<void(uint64_t offset, std::span<const uint8_t> bytes)>;

/// Told how many of the image's bytes are done; called from one thread at a
/// time.
using ProgressFn = std::function<void(uint64_t done, uint64_t total)>;

/// Packs the weights of all qwen.packed ops of `module` (stage "calls") with
/// `threads` threads. Does not write
/// the padding between the parts, which counts as zeros. The bytes depend only
/// on module and checkpoint. Throws Error, naming the tensor, for a weight that
/// is not finite or has a scale too large for f16.
void packWeights(mlir::ModuleOp module, const Checkpoint &checkpoint,
                 unsigned threads, const WriteFn &write,
                 const ProgressFn &progress);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_PACK_H
