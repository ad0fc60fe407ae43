//===- Rotation.h - Rotations of docs/numerics.md ---------------*- C++ -*-===//
//
// Orthogonal matrices that the compiler folds into weights, so that no channel
// of the activations is much larger than the others (QuaRot,
// https://arxiv.org/abs/2404.00456). Rows are multiplied by fast transforms.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_ROTATION_H
#define QWEN_NUMERICS_ROTATION_H

#include <cstdint>
#include <span>
#include <vector>

namespace qwen::numerics {

/// The greatest odd divisor of a positive number.
constexpr int64_t oddPart(int64_t size) { return size / (size & -size); }

/// The orthogonal matrix R of a size: signs, then the Hartley transform of the
/// size's odd part (x) the Hadamard transform of its power of two.
class Rotation {
public:
  /// `size` is 1 or more.
  explicit Rotation(int64_t size);

  int64_t size() const { return static_cast<int64_t>(signValues.size()); }
  /// 1 or -1 for each value.
  std::span<const double> signs() const { return signValues; }
  /// (cos + sin)(2 pi i / m) / sqrt(size) for each i below m, the odd part.
  std::span<const double> factor() const { return factorValues; }

  /// x becomes x R. It has `lanes` rows, which are columns in memory:
  /// [size][lanes].
  void turn(double *x, int64_t lanes = 1) const;
  /// x becomes x R^T.
  void turnBack(double *x, int64_t lanes = 1) const;

private:
  void multiplySigns(double *x, int64_t lanes) const;
  void transform(double *x, int64_t lanes) const;

  std::vector<double> signValues, factorValues;
};

/// x becomes what `hadamard` of the same values multiplies to x: the same
/// transform, divided by the size of each block.
void undoHadamard(std::span<double> x);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_ROTATION_H
