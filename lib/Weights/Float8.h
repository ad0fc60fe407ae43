//===- Float8.h - Matrices of F8_E4M3 ---------------------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_FLOAT8_H
#define QWEN_LIB_WEIGHTS_FLOAT8_H

#include "qwen/Weights/Forms.h"

namespace qwen {

/// The outputs and columns of a matrix that share a scale. The last block may
/// be smaller; 0 stands for all.
struct ScaleBlock {
  int64_t outputs, columns;
};

/// Throws Error unless `scales` are floats, one for each block of a matrix of
/// `shape`. Sizes of 1 at the end do not count: writers differ in them.
void requireScales(const StoredTensor &scales, const ScaleBlock &block,
                   const WeightShape &shape);

/// The sizes of a block: two positive ones.
ScaleBlock readScaleBlock(const JsonValue &value);

/// The matrix `weight` [N, K] of F8_E4M3: value * scale, rounded once to f32.
/// Throws Error for other types and shapes.
WeightSourcePtr makeFloat8(const StoredTensor &weight,
                           const StoredTensor &scales, ScaleBlock block,
                           std::string_view form);

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_FLOAT8_H
