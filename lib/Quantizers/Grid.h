//===- Grid.h - What a format of weights can hold ---------------*- C++ -*-===//
//
// The values of a block of eight outputs, once its scales are chosen. All facts
// come from the rows of WeightFormats.def, so a new format needs no code here.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_QUANTIZERS_GRID_H
#define QWEN_LIB_QUANTIZERS_GRID_H

#include "EightFloats.h"

#include "qwen/Numerics/Encode.h"

#include <span>
#include <vector>

namespace qwen {

/// The scales of a block, as the format holds them: lanes are outputs.
struct BlockScales {
  /// The scale, and a minimum or a zero point: values of f16.
  Lanes numbers[2];
  /// The integers that they are multiplied with in each sub-block; 1 without.
  Lanes subIntegers[2][16];
};

/// The values of a sub-block are integer * step + minimum, or (integer - zero)
/// * step, rounded as in docs/numerics.md.
struct Steps {
  Lanes step, inverse, minimum, zero;
};

/// A small change of the scales of a sub-block.
struct ScaleChange {
  /// The factor of a scale, and what is added to the integers of a sub-block.
  float factor = 1;
  float subIntegers[2] = {};
};

class Grid {
public:
  /// `format` is quantized.
  explicit Grid(WeightFormat format);

  /// The number of values along K in a block and in a sub-block. A format
  /// without sub-scales has one sub-block a block.
  int64_t block() const { return blockSize; }
  int64_t subBlock() const { return subSize; }

  /// Chooses all scales of a block of `count` columns, so that the sum of
  /// squared errors, each times its importance, is about the least. A block of
  /// values beyond 2^30 has an infinite scale, which no f16 holds.
  BlockScales choose(const Lanes *x, const Lanes *importance,
                     int64_t count) const;
  /// Chooses the integers of sub-block `j` again for `x`, its columns.
  void chooseSub(int64_t j, const Lanes *x, const Lanes *importance,
                 BlockScales &scales) const;

  /// Changes worth trying. The first changes nothing.
  std::span<const ScaleChange> changes() const;
  /// `scales` with the scales of sub-block `j` changed; the middle of its
  /// values stays, where they have a minimum.
  BlockScales changed(const BlockScales &scales, int64_t j,
                      const ScaleChange &change) const;

  Steps steps(const BlockScales &scales, int64_t j) const;
  /// The integer of the nearest value.
  Lanes nearest(Lanes x, const Steps &steps) const {
    const Lanes scaled = fma(x - steps.minimum, steps.inverse, steps.zero);
    return codebook.empty() ? nearestLinear(scaled) : nearestOfCodebook(scaled);
  }
  /// The exact value of an integer.
  static Lanes value(Lanes integer, const Steps &steps) {
    return (integer - steps.zero) * steps.step + steps.minimum;
  }

  /// Whether f16 holds the scales of each output.
  numerics::EncodeStatus check(const BlockScales &scales, int64_t lane) const;
  /// Fills the block of output `lane`, whose `count` integers are given.
  void fill(const BlockScales &scales, const Lanes *integers, int64_t count,
            int64_t lane, numerics::WeightBlock &block) const;

private:
  /// A scale and an addend, before f16 rounds them.
  struct Range {
    Lanes scale, minimum;
  };

  Lanes nearestLinear(Lanes x) const {
    return roundEven(greatest(least(x, splat(top)), splat(bottom)));
  }
  Lanes nearestOfCodebook(Lanes x) const {
    Lanes value = splat(codebook[0]);
    for (size_t i = 1; i < codebook.size(); ++i)
      value = x >= midpoints[i - 1] ? splat(codebook[i]) : value;
    return value;
  }
  template <typename Nearest>
  Lanes searchScale(const Lanes *x, const Lanes *importance, int64_t count,
                    Nearest nearest) const;
  Range searchRange(const Lanes *x, const Lanes *importance,
                    int64_t count) const;
  /// The best scale, and minimum if the format has one, of `count` columns.
  Range search(const Lanes *x, const Lanes *importance, int64_t count) const;
  Lanes subInteger(Lanes integer) const;
  void refineSub(int64_t j, const Lanes *x, const Lanes *importance,
                 int64_t count, const Range &range, BlockScales &scales) const;

  const CodingInfo coding;
  const ScaleInfo scaleInfo;
  const int64_t blockSize, subSize;
  /// The integers of the format.
  float bottom, top;
  std::vector<float> codebook, midpoints;
  /// What the value of largest magnitude may be, in steps.
  std::vector<float> candidates;
};

/// The blocks of kLanes outputs of `k` values.
class EncodedOutputs {
public:
  EncodedOutputs(const Grid &grid, int64_t k)
      : grid(grid), blocks(ceilDiv(k, grid.block())),
        encoded(static_cast<size_t>(kLanes * blocks)) {}

  void set(int64_t block, const BlockScales &scales, const Lanes *integers,
           int64_t count) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      grid.fill(scales, integers, count, lane, encoded[lane * blocks + block]);
  }
  std::span<const numerics::WeightBlock> output(int64_t lane) const {
    return std::span(encoded).subspan(lane * blocks, blocks);
  }

private:
  const Grid &grid;
  const int64_t blocks;
  std::vector<numerics::WeightBlock> encoded;
};

} // namespace qwen

#endif // QWEN_LIB_QUANTIZERS_GRID_H
