//===- SearchQuantizer.cpp - Scales by the squared error of weights -------===//
//
// Errors count by the magnitude of their weight. Without it, large weights
// would be cut for the sake of many small ones, and real models lose more than
// by rounding: these weights belong to their strongest inputs and outputs.
// An importance matrix has the inputs themselves, and takes the place of the
// magnitudes.
//
//===----------------------------------------------------------------------===//

#include "Grid.h"
#include "QuantizedSources.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace qwen;
using numerics::EncodeError;
using numerics::EncodeStatus;

namespace {
/// Integers that are computed when they are asked for.
class SearchedSource final : public ForwardingSource {
public:
  SearchedSource(WeightSourcePtr from, WeightFormat to,
                 std::shared_ptr<const std::vector<float>> importance)
      : ForwardingSource(std::move(from)), format(to), grid(to),
        columns(std::move(importance)) {}

  bool hasIntegers() const override { return true; }

  OutputSet kept(WeightFormat other, int64_t first,
                 int64_t count) const override {
    return other == format ? (OutputSet{1} << count) - 1
                           : source->kept(other, first, count);
  }

  EncodeError keep(WeightFormat other, int64_t first, OutputSet outputs,
                   int64_t lane, uint8_t *panel) const override {
    const OutputSet exact =
        source->kept(other, first, std::bit_width(outputs)) & outputs;
    EncodeError error;
    if (exact != 0)
      error += source->keep(other, first, exact, lane, panel);
    OutputSet rest = outputs & ~exact;
    for (int64_t i = 0; rest >> i != 0; i += kLanes)
      if (const OutputSet some = someOf(rest, i, kLanes))
        error += encode(first + i, some, lane + i, panel);
    return error;
  }

private:
  EncodeError encode(int64_t first, OutputSet outputs, int64_t lane,
                     uint8_t *panel) const;
  /// How much errors of `weights` count. These are the weights of column `j`,
  /// one for each output from `first` on.
  Lanes importanceOf(const Lanes &weights, int64_t first, int64_t j) const;

  const WeightFormat format;
  const Grid grid;
  const std::shared_ptr<const std::vector<float>> columns;
};
} // namespace

Lanes SearchedSource::importanceOf(const Lanes &weights, int64_t first,
                                   int64_t j) const {
  if (!columns)
    return magnitude(weights);
  const int64_t k = shape().k(), outputs = shape().outputs(),
                matrices = std::ssize(*columns) / k;
  Lanes importance;
  for (int64_t i = 0; i < kLanes; ++i)
    importance[i] = (*columns)[static_cast<size_t>(
        std::min(first + i, outputs - 1) * matrices / outputs * k + j)];
  return importance;
}

/// Puts some of kLanes outputs into a panel.
EncodeError SearchedSource::encode(int64_t first, OutputSet outputs,
                                   int64_t lane, uint8_t *panel) const {
  const int64_t k = shape().k(), block = grid.block(),
                count = std::bit_width(outputs);
  std::vector<float> rows(static_cast<size_t>(count * k));
  std::vector<Lanes> x(static_cast<size_t>(block)), importance(x.size());
  source->read(first, count, rows.data());
  requireFinite(*source, first, rows);
  EncodedOutputs encoded(grid, k);
  Lanes errors = {}, values = {};
  for (int64_t begin = 0; begin < k; begin += block) {
    const int64_t width = std::min(block, k - begin);
    for (int64_t j = 0; j < width; ++j) {
      for (int64_t i = 0; i < kLanes; ++i)
        x[j][i] = i < count ? rows[i * k + begin + j] : 0.0f;
      importance[j] = importanceOf(x[j], first, begin + j);
    }
    const BlockScales scales = grid.choose(x.data(), importance.data(), width);
    for (int64_t i = 0; i < count; ++i)
      if (const EncodeStatus status = grid.check(scales, i);
          (outputs >> i & 1) != 0 && status != EncodeStatus::Ok)
        throw refusal(*source, status, first + i);
    for (int64_t j = 0; j < width; ++j) {
      const Steps steps = grid.steps(scales, j / grid.subBlock());
      const Lanes integer = grid.nearest(x[j], steps);
      const Lanes wrong = x[j] - Grid::value(integer, steps);
      values = fma(x[j], x[j], values);
      errors = fma(wrong, wrong, errors);
      x[j] = integer;
    }
    encoded.set(begin / block, scales, x.data(), width);
  }
  EncodeError sums;
  for (int64_t i = 0; i < count; ++i)
    if ((outputs >> i & 1) != 0) {
      numerics::putOutput(format, encoded.output(i).data(), k, lane + i, panel);
      sums += {errors[i], values[i]};
    }
  return sums;
}

WeightSourcePtr
qwen::makeSearched(WeightSourcePtr source, WeightFormat format,
                   std::shared_ptr<const std::vector<float>> columns) {
  return std::make_shared<SearchedSource>(std::move(source), format,
                                          std::move(columns));
}
