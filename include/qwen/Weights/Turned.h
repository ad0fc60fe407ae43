//===- Turned.h - Weights that a rotation is folded into --------*- C++ -*-===//

#ifndef QWEN_WEIGHTS_TURNED_H
#define QWEN_WEIGHTS_TURNED_H

#include "qwen/Weights/WeightSource.h"

namespace qwen {

/// What is folded into a matrix [outputs][K], in this order. A vector of n
/// values is a matrix [n][1].
struct Turn {
  /// K factors of the columns, or null: the norm before a product.
  WeightSourcePtr scales;
  /// Each block of so many columns w becomes w R (numerics::Rotation), 0: none.
  /// It divides K.
  int64_t columns = 0;
  /// Whether the columns are multiplied with the inverse of the transform of
  /// `qwen.hadamard`, in place of a rotation.
  bool hadamard = false;
  /// Each block of so many outputs W becomes R^T W, 0: none. It divides the
  /// number of outputs.
  int64_t outputs = 0;
};

/// `source` with a turn, computed in double and rounded once. It has no
/// integers. Turned outputs depend on each other: the first read computes all
/// of them and keeps them, in a temporary file if they are large; it throws
/// Error if there is no room.
WeightSourcePtr makeTurned(WeightSourcePtr source, const Turn &turn);

/// The vector that `qwen.turn` reads for rows of `size` values: the signs of
/// the rotation, then the values of its odd part.
WeightSourcePtr makeRotation(int64_t size);

/// A vector of `count` ones.
WeightSourcePtr makeOnes(int64_t count);

} // namespace qwen

#endif // QWEN_WEIGHTS_TURNED_H
