//===- LearnedMatrix.h - Integers whose scales change -----------*- C++ -*-===//
//
// The scales and the minimums or zero points of a matrix may learn while its
// integers stay. All facts come from the rows of WeightFormats.def, so a new
// format needs no code here.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_QUANTIZERS_LEARNEDMATRIX_H
#define QWEN_QUANTIZERS_LEARNEDMATRIX_H

#include "qwen/Support/Parallel.h"
#include "qwen/Weights/Owned.h"

#include <memory>
#include <span>
#include <vector>

namespace qwen {

/// A matrix [outputs][k] of integers that another source has. Its values follow
/// the numbers of its blocks, which the caller has and changes: for each
/// output, the scales of its blocks, and then their minimums or zero points.
/// Sub-scales and sub-minimums stay, as integers do.
class LearnedMatrix final : public ComputedSource {
public:
  /// `integers` keeps all outputs in the quantized `format`.
  LearnedMatrix(WeightSourcePtr integers, WeightFormat format,
                unsigned threads = machineThreads());

  /// Numbers of one output, and of all.
  int64_t outputNumbers() const { return blocks * scales.numbers; }
  int64_t numbers() const { return outputNumbers() * shape().outputs(); }
  /// The numbers that the source has.
  const std::vector<float> &ownNumbers() const { return own; }
  /// For each number the change of it that counts as one: the magnitude of a
  /// scale; of a minimum or a zero point, what moves a block's values about as
  /// much as that change of the scale does.
  std::vector<float> units() const;

  /// From now on, values follow these numbers, which must outlive this.
  void follow(std::span<const float> given) { followed = given; }
  /// The values of docs/numerics.md, for numbers that need not be f16.
  void read(int64_t first, int64_t count, float *values) const override;
  /// Adds to the gradient by the numbers of `output` what `slope`, the gradient
  /// by its k values, adds. Several threads may add to different outputs.
  void addGradient(int64_t output, const float *slope, float *gradient) const;

  /// The integers with the numbers that values follow, rounded to f16, and the
  /// errors of the source. Throws Error if there is no room.
  std::shared_ptr<Owned> withNumbers(Place place) const;

private:
  const float *numbersOf(int64_t output) const {
    return followed.data() + output * outputNumbers();
  }
  /// What number `number` of the sub-block from value `first` on is multiplied
  /// with.
  float subInteger(int64_t output, int64_t number, int64_t first) const;

  const WeightFormat format;
  const ScaleInfo scales;
  /// Values of a block and of a sub-block, and blocks of an output.
  const int64_t blockSize, subSize, blocks;
  /// [outputs][k], and for each number [outputs][number][k / subSize].
  std::vector<int8_t> integers, subIntegers;
  std::vector<float> own;
  std::span<const float> followed;
};

} // namespace qwen

#endif // QWEN_QUANTIZERS_LEARNEDMATRIX_H
