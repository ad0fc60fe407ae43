//===- Pack.h - The weight image --------------------------------*- C++ -*-===//
//
// Packs the weights panel by panel from the mapped checkpoint, with all cores
// and little memory.
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

/// Writes `bytes` at `offset` of the image. Several threads may call it at the
/// same time. Throws Error.
using WriteFn =
    std::function<void(uint64_t offset, std::span<const uint8_t> bytes)>;

/// Receives the number of packed bytes. Only one thread calls it at a time.
using ProgressFn = std::function<void(uint64_t done, uint64_t total)>;

/// Packs the weights of all qwen.packed ops of `module` (stage "calls") with
/// `threads` threads. Does not write the padding between the parts, which must
/// be zeros. The bytes depend only on module and checkpoint. Throws Error, with
/// the tensor, if a weight is not finite or its scale is too large for f16.
void packWeights(mlir::ModuleOp module, const Checkpoint &checkpoint,
                 unsigned threads, const WriteFn &write,
                 const ProgressFn &progress);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_PACK_H
