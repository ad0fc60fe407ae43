//===- Grid.cpp - What a format of weights can hold -----------------------===//

#include "Grid.h"

#include "qwen/Numerics/Float16.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;
using numerics::EncodeStatus;

/// Each lane rounded to f16.
static Lanes toF16(Lanes x) {
  Lanes result;
  for (int64_t lane = 0; lane < kLanes; ++lane)
    result[lane] = f16ToF32(f32ToF16(x[lane]));
  return result;
}

/// The value of largest magnitude, the first of several.
static Lanes largestOf(const Lanes *x, int64_t count) {
  Lanes largest = x[0];
  for (int64_t i = 1; i < count; ++i)
    largest = magnitude(x[i]) > magnitude(largest) ? x[i] : largest;
  return largest;
}

/// What the value of largest magnitude may be, in steps: around the ends of the
/// integers `bottom` to `top`, a little less or more, so that other values
/// lie better or the largest is cut.
static std::vector<float> candidatesOf(float bottom, float top) {
  // In parts of the range of 4 bits; more bits gain less by cutting.
  const float unit = top > 100 ? 7.0f : 1.0f;
  const int parts = top > 7 && top < 100 ? 2 : 4;
  std::vector<float> candidates;
  for (int i = -parts; i <= 2 * parts; ++i) {
    const float cut = unit * static_cast<float>(i) / static_cast<float>(parts);
    candidates.push_back(bottom + cut);
    candidates.push_back(top - cut);
  }
  return candidates;
}

Grid::Grid(WeightFormat format)
    : coding(codingOf(format)), scaleInfo(scalesOf(format)),
      blockSize(weightBlock(format)),
      subSize(scaleInfo.hasSubBlocks() ? scaleInfo.subBlock : blockSize) {
  if (coding.hasCodebook())
    codebook.assign(std::begin(coding.codebook), std::end(coding.codebook));
  for (size_t i = 1; i < codebook.size(); ++i)
    midpoints.push_back((codebook[i - 1] + codebook[i]) / 2);
  // Products of int8 have no -128.
  bottom = coding.bits == 8 ? -127.0f : static_cast<float>(-coding.bias);
  top = coding.bits == 8
            ? 127.0f
            : static_cast<float>((1 << coding.bits) - 1 - coding.bias);
  if (!codebook.empty()) {
    bottom = codebook.front();
    top = codebook.back();
  }
  candidates = candidatesOf(bottom, top);
}

//===----------------------------------------------------------------------===//
// Scales of a sub-block
//===----------------------------------------------------------------------===//

/// A scale without a minimum. For integers q, the best scale is qx / qq, whose
/// error is xx - qx * qx / qq.
template <typename Nearest>
Lanes Grid::searchScale(const Lanes *x, const Lanes *importance, int64_t count,
                        Nearest nearest) const {
  Lanes scale = {}, best = {};
  const auto offer = [&](Lanes inverse) {
    Lanes qx = {}, qq = {};
    for (int64_t i = 0; i < count; ++i) {
      const Lanes q = nearest(x[i] * inverse), weighted = importance[i] * q;
      qx = fma(weighted, x[i], qx);
      qq = fma(weighted, q, qq);
    }
    const LaneMask better = qx * qx > best * qq;
    const Lanes found = qx / qq;
    scale = better ? found : scale;
    best = better ? found * qx : best;
  };
  const Lanes inverse = reciprocal(largestOf(x, count));
  for (float candidate : candidates)
    offer(candidate * inverse);
  offer(reciprocal(scale));
  return scale;
}

/// A scale and a minimum, which is at most 0 in formats with sub-blocks. Works
/// on x - middle, because squares of values with a common part cancel.
Grid::Range Grid::searchRange(const Lanes *x, const Lanes *importance,
                              int64_t count) const {
  Lanes lowest = x[0], highest = x[0];
  for (int64_t i = 1; i < count; ++i) {
    lowest = least(lowest, x[i]);
    highest = greatest(highest, x[i]);
  }
  if (scaleInfo.hasSubBlocks()) {
    lowest = least(lowest, Lanes{});
    highest = greatest(highest, Lanes{});
  }
  const Lanes middle = (lowest + highest) * 0.5f;
  Lanes sum = {}, sumX = {}, sumXX = {};
  for (int64_t i = 0; i < count; ++i) {
    const Lanes value = x[i] - middle, weighted = importance[i] * value;
    sum += importance[i];
    sumX += weighted;
    sumXX = fma(weighted, value, sumXX);
  }
  Range range = {(highest - lowest) / top, lowest};
  Lanes best = splat(std::numeric_limits<float>::infinity());
  const auto offer = [&](Lanes inverse, Lanes addend) {
    Lanes q1 = {}, qq = {}, qx = {};
    for (int64_t i = 0; i < count; ++i) {
      const Lanes value = x[i] - middle;
      const Lanes q = nearestLinear(fma(value, inverse, addend));
      const Lanes weighted = importance[i] * q;
      q1 += weighted;
      qq = fma(weighted, q, qq);
      qx = fma(weighted, value, qx);
    }
    const Lanes determinant = sum * qq - q1 * q1;
    Lanes scale = (sum * qx - q1 * sumX) / determinant;
    Lanes minimum = (qq * sumX - q1 * qx) / determinant;
    if (scaleInfo.hasSubBlocks()) {
      const LaneMask isAbove = minimum + middle > 0.0f;
      minimum = isAbove ? -middle : minimum;
      scale = isAbove ? (qx + middle * q1) / qq : scale;
    }
    const Lanes error = sumXX + scale * (scale * qq - 2.0f * qx) +
                        minimum * (minimum * sum - 2.0f * sumX) +
                        2.0f * scale * minimum * q1;
    // False where the determinant is 0.
    const LaneMask better = error < best && scale > 0.0f;
    best = better ? error : best;
    range.scale = better ? scale : range.scale;
    range.minimum = better ? minimum + middle : range.minimum;
  };
  const Lanes inverse = reciprocal(highest - lowest);
  for (const float cut : {-1.0f, -0.5f, 0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 2.5f})
    offer((top + cut) * inverse, splat(0.5f * top));
  for (int pass = 0; pass < 2; ++pass) {
    const Lanes last = reciprocal(range.scale);
    offer(last, (middle - range.minimum) * last);
  }
  return range;
}

Grid::Range Grid::search(const Lanes *x, const Lanes *importance,
                         int64_t count) const {
  if (scaleInfo.numbers == 2)
    return searchRange(x, importance, count);
  if (codebook.empty())
    return {searchScale(x, importance, count,
                        [&](Lanes value) { return nearestLinear(value); }),
            {}};
  return {searchScale(x, importance, count,
                      [&](Lanes value) { return nearestOfCodebook(value); }),
          {}};
}

//===----------------------------------------------------------------------===//
// Scales of a block
//===----------------------------------------------------------------------===//

/// The integers of sub-blocks.
static float lowestSub(const ScaleInfo &info) {
  return info.subBits == 8 ? -128.0f : static_cast<float>(-info.subBias);
}
static float highestSub(const ScaleInfo &info) {
  return lowestSub(info) + static_cast<float>((1 << info.subBits) - 1);
}

Lanes Grid::subInteger(Lanes integer) const {
  return roundEven(greatest(least(integer, splat(highestSub(scaleInfo))),
                            splat(lowestSub(scaleInfo))));
}

/// The integers with the least error among the nearest to `range` and their
/// neighbours.
void Grid::refineSub(int64_t j, const Lanes *x, const Lanes *importance,
                     int64_t count, const Range &range,
                     BlockScales &scales) const {
  const Lanes inverse = reciprocal(scales.numbers[0]);
  const Lanes inverseMinimum = reciprocal(scales.numbers[1]);
  constexpr float kNeighbours[] = {0.0f, -1.0f, 1.0f};
  Lanes best = splat(std::numeric_limits<float>::infinity());
  Lanes chosen[2] = {};
  for (const float minimumStep :
       std::span(kNeighbours).first(scaleInfo.numbers == 2 ? 3 : 1))
    for (const float step : kNeighbours) {
      BlockScales tried = scales;
      tried.subIntegers[0][j] = subInteger(range.scale * inverse + step);
      tried.subIntegers[1][j] =
          subInteger(range.minimum * inverseMinimum + minimumStep);
      const Steps grid = steps(tried, j);
      Lanes error = {};
      for (int64_t i = 0; i < count; ++i) {
        const Lanes wrong = x[i] - value(nearest(x[i], grid), grid);
        error = fma(importance[i] * wrong, wrong, error);
      }
      const LaneMask better = error < best;
      best = better ? error : best;
      for (int64_t number : {0, 1})
        chosen[number] = better ? tried.subIntegers[number][j] : chosen[number];
    }
  for (int64_t number : {0, 1})
    scales.subIntegers[number][j] = chosen[number];
}

BlockScales Grid::choose(const Lanes *x, const Lanes *importance,
                         int64_t count) const {
  BlockScales scales = {};
  const LaneMask isLarge = magnitude(largestOf(x, count)) > 0x1p30f;
  const auto setScale = [&](Lanes scale) {
    scales.numbers[0] =
        isLarge ? splat(std::numeric_limits<float>::infinity()) : toF16(scale);
  };
  if (!scaleInfo.hasSubBlocks()) {
    const Range range = search(x, importance, count);
    setScale(range.scale);
    scales.numbers[1] =
        toF16(scaleInfo.hasZero ? -range.minimum * reciprocal(scales.numbers[0])
                                : range.minimum);
    for (auto &integers : scales.subIntegers)
      integers[0] = splat(1.0f);
    return scales;
  }
  Range ranges[16];
  Lanes steps[16], minimums[16];
  const int64_t subs = count / subSize;
  for (int64_t j = 0; j < subs; ++j) {
    ranges[j] = search(x + j * subSize, importance + j * subSize, subSize);
    steps[j] = ranges[j].scale;
    minimums[j] = ranges[j].minimum;
  }
  const float lowest = lowestSub(scaleInfo), highest = highestSub(scaleInfo);
  setScale(largestOf(steps, subs) / (lowest < 0 ? lowest : highest));
  scales.numbers[1] = toF16(largestOf(minimums, subs) / highest);
  for (int64_t j = 0; j < subs; ++j)
    refineSub(j, x + j * subSize, importance + j * subSize, subSize, ranges[j],
              scales);
  return scales;
}

void Grid::chooseSub(int64_t j, const Lanes *x, const Lanes *importance,
                     BlockScales &scales) const {
  refineSub(j, x, importance, subSize, search(x, importance, subSize), scales);
}

std::span<const ScaleChange> Grid::changes() const {
  static constexpr ScaleChange kScales[] = {{},      {0.97f},  {1.03f},
                                            {0.94f}, {1.06f},  {0.91f},
                                            {1.09f}, {0.985f}, {1.015f}};
  static constexpr ScaleChange kSubs[] = {
      {}, {1, {-1}}, {1, {1}}, {1, {0, -1}}, {1, {0, 1}}};
  if (!scaleInfo.hasSubBlocks())
    return kScales;
  return std::span(kSubs).first(scaleInfo.numbers == 2 ? 5 : 3);
}

BlockScales Grid::changed(const BlockScales &scales, int64_t j,
                          const ScaleChange &change) const {
  BlockScales result = scales;
  if (scaleInfo.hasSubBlocks()) {
    for (int64_t number : {0, 1})
      result.subIntegers[number][j] = subInteger(scales.subIntegers[number][j] +
                                                 change.subIntegers[number]);
    return result;
  }
  result.numbers[0] = toF16(scales.numbers[0] * change.factor);
  if (scaleInfo.hasMinimum())
    result.numbers[1] =
        toF16(scales.numbers[1] +
              (scales.numbers[0] - result.numbers[0]) * (0.5f * top));
  return result;
}

Steps Grid::steps(const BlockScales &scales, int64_t j) const {
  const Lanes step = scales.subIntegers[0][j] * scales.numbers[0];
  const Lanes other = scales.subIntegers[1][j] * scales.numbers[1];
  return {step, reciprocal(step), scaleInfo.hasZero ? Lanes{} : other,
          scaleInfo.hasZero ? other : Lanes{}};
}

EncodeStatus Grid::check(const BlockScales &scales, int64_t lane) const {
  if (!std::isfinite(scales.numbers[0][lane]))
    return EncodeStatus::ScaleOverflow;
  return std::isfinite(scales.numbers[1][lane]) ? EncodeStatus::Ok
                                                : EncodeStatus::MinimumOverflow;
}

void Grid::fill(const BlockScales &scales, const Lanes *integers, int64_t count,
                int64_t lane, numerics::WeightBlock &block) const {
  block.scale = f32ToF16(scales.numbers[0][lane]);
  block.minimum = f32ToF16(scales.numbers[1][lane]);
  for (int64_t number : {0, 1})
    for (int64_t j = 0; j < 16; ++j)
      block.subIntegers[number][j] = static_cast<uint8_t>(
          static_cast<int>(scales.subIntegers[number][j][lane]) +
          static_cast<int>(scaleInfo.subBias));
  uint8_t codes[256];
  for (size_t i = 0; i < codebook.size(); ++i)
    codes[static_cast<uint8_t>(coding.codebook[i])] = static_cast<uint8_t>(i);
  const auto *values = reinterpret_cast<const float *>(integers) + lane;
  for (int64_t i = 0; i < count; ++i) {
    const auto integer = static_cast<int>(values[i * kLanes]);
    block.codes[i] = codebook.empty()
                         ? static_cast<uint8_t>(integer + coding.bias)
                         : codes[static_cast<uint8_t>(integer)];
  }
}
