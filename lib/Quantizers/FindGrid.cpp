//===- FindGrid.cpp - Integers that values were made of -------------------===//

#include "qwen/Quantizers/FindGrid.h"

#include "qwen/Numerics/Float16.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

using namespace qwen;
using numerics::WeightBlock;

//===----------------------------------------------------------------------===//
// Types of floats
//===----------------------------------------------------------------------===//

/// The value of `type` that is `steps` behind the positive value `x`, which
/// the type holds.
static double neighbour(StoredType type, float x, int steps) {
  if (type == StoredType::F16)
    return f16ToF32(static_cast<uint16_t>(f32ToF16(x) + steps));
  const auto step =
      static_cast<uint32_t>(type == StoredType::BF16 ? 0x10000 : 1);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) +
                              step * static_cast<uint32_t>(steps));
}

static float roundTo(StoredType type, float x) {
  switch (type) {
  case StoredType::F16:
    return f16ToF32(f32ToF16(x));
  case StoredType::BF16:
    return bf16ToF32(f32ToBF16(x));
  default:
    return x;
  }
}

namespace {
/// Real numbers.
struct Interval {
  double least, most;

  /// The numbers that `type` rounds to `x`, with both ends.
  static Interval roundedTo(StoredType type, float x) {
    if (x < 0) {
      const Interval positive = roundedTo(type, -x);
      return {-positive.most, -positive.least};
    }
    const double above = neighbour(type, x, 1);
    return {x == 0 ? -above / 2 : (x + neighbour(type, x, -1)) / 2,
            (x + above) / 2};
  }
  double middle() const { return (least + most) / 2; }
  bool has(double number) const { return number >= least && number <= most; }
  /// Keeps the numbers that are in `other` too. Returns whether there are any.
  bool narrow(const Interval &other) {
    least = std::max(least, other.least);
    most = std::min(most, other.most);
    return least <= most;
  }
  /// Keeps the numbers whose product with `factor` is in `other`. Returns
  /// whether there are any.
  bool narrow(const Interval &other, int factor) {
    least = std::max(least, other.least / factor);
    most = std::min(most, other.most / factor);
    return least <= most;
  }
};

/// The values of a block as integers times a scale, plus a minimum.
struct Fit {
  float scale = 0, minimum = 0;
  int integers[256] = {};

  bool are(std::span<const float> x, StoredType type) const;
  bool find(std::span<const float> x, StoredType type, int most);
  bool findWithMinimum(std::span<const float> x, StoredType type, int most);
};
} // namespace

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// Whether integers times the scale, plus the minimum, are `x`, rounded to
/// `type`.
bool Fit::are(std::span<const float> x, StoredType type) const {
  for (size_t i = 0; i < x.size(); ++i)
    if (roundTo(type, static_cast<float>(integers[i]) * scale + minimum) !=
        x[i])
      return false;
  return true;
}

/// The value of f16 that is `steps` above `x`, which f16 holds.
static float halfAbove(float x, int steps) {
  // In the order of the values, from -0.
  const auto bits = static_cast<int16_t>(f32ToF16(x));
  const int place = (bits < 0 ? -(bits & 0x7FFF) : bits) + steps;
  return f16ToF32(static_cast<uint16_t>(place < 0 ? 0x8000 | -place : place));
}

/// Calls fits(x) for the values x of f16 in `numbers`, those next to the middle
/// first, until it returns true. Returns whether it did.
template <typename Fits>
static bool anyHalf(const Interval &numbers, const Fits &fits) {
  const float middle = f16ToF32(f32ToF16(static_cast<float>(numbers.middle())));
  bool inside = true;
  for (int step = 0; inside; ++step) {
    inside = false;
    for (int steps : {-step, step}) {
      const float number = halfAbove(middle, steps);
      const bool isInside = numbers.has(number);
      inside |= isInside || step == 0;
      if (isInside && fits(number))
        return true;
    }
  }
  return false;
}

/// Finds the least integers, of magnitudes up to `most`.
bool Fit::find(std::span<const float> x, StoredType type, int most) {
  float largest = 0;
  for (float value : x)
    largest = std::max(largest, std::fabs(value));
  if (!std::isfinite(largest))
    return false;
  if (largest == 0) {
    *this = {};
    return true;
  }
  // The integers of small values are certain, and narrow the scale for the
  // large ones.
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [x](size_t i) { return std::fabs(x[i]); });
  const Interval top = Interval::roundedTo(type, largest);
  for (int integer = 1; integer <= most; ++integer) {
    Interval scales = {top.least / integer, top.most / integer};
    bool fits = true;
    for (size_t i : order) {
      const float magnitude = std::fabs(x[i]);
      const auto q = static_cast<int>(std::lround(magnitude / scales.middle()));
      integers[i] = x[i] < 0 ? -q : q;
      fits = q == 0
                 ? magnitude == 0
                 : q <= most &&
                       scales.narrow(Interval::roundedTo(type, magnitude), q);
      if (!fits)
        break;
    }
    if (fits && anyHalf(scales, [&](float half) {
          scale = half;
          return are(x, type);
        }))
      return true;
  }
  return false;
}

namespace {
/// Finds a scale and a minimum. A value v is q * scale + minimum, rounded.
class MinimumFinder {
public:
  /// `values` ascend and are different.
  MinimumFinder(std::span<const float> values, StoredType type) {
    for (float value : values)
      rounded.push_back(Interval::roundedTo(type, value));
  }

  /// Finds integers from 0 to `span`, and the scales that differences of values
  /// allow.
  std::optional<Interval> scalesOf(int span) {
    integers.clear();
    const double guess =
        (rounded.back().middle() - rounded.front().middle()) / span;
    for (const Interval &value : rounded)
      integers.push_back(static_cast<int>(
          std::lround((value.middle() - rounded.front().middle()) / guess)));
    Interval scales = {0, INFINITY};
    for (size_t i = 0; i < rounded.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (const int steps = integers[i] - integers[j];
            steps == 0 || !scales.narrow({rounded[i].least - rounded[j].most,
                                          rounded[i].most - rounded[j].least},
                                         steps))
          return std::nullopt;
    return scales;
  }

  /// The minimums with a scale, where `first` is the least integer.
  Interval minimumsOf(double scale, int first) const {
    Interval minimums = {-INFINITY, INFINITY};
    for (size_t i = 0; i < rounded.size(); ++i) {
      const double product = scale * (integers[i] + first);
      (void)minimums.narrow(
          {rounded[i].least - product, rounded[i].most - product});
    }
    return minimums;
  }

  std::vector<int> integers;

private:
  std::vector<Interval> rounded;
};
} // namespace

/// Finds integers from 0 to `most`, the least span and then the least first
/// one.
bool Fit::findWithMinimum(std::span<const float> x, StoredType type, int most) {
  std::vector<float> values(x.begin(), x.end());
  std::ranges::sort(values);
  const auto repeated = std::ranges::unique(values);
  values.erase(repeated.begin(), repeated.end());
  if (std::ssize(values) > most + 1 || !std::isfinite(values.front()) ||
      !std::isfinite(values.back()))
    return false;
  const auto numberOf = [&](float value) {
    return static_cast<size_t>(std::ranges::lower_bound(values, value) -
                               values.begin());
  };
  MinimumFinder finder(values, type);
  const int least = static_cast<int>(values.size()) - 1;
  for (int span = least; span <= most; ++span) {
    const std::optional<Interval> scales =
        least ? finder.scalesOf(span) : Interval{0, 0};
    if (least == 0)
      finder.integers = {0};
    const auto fits = [&](int first) {
      for (size_t i = 0; i < x.size(); ++i)
        integers[i] = first + finder.integers[numberOf(x[i])];
      return anyHalf(*scales, [&](float half) {
        scale = half;
        return anyHalf(finder.minimumsOf(half, first), [&](float number) {
          minimum = number;
          return are(x, type);
        });
      });
    };
    for (int first = 0; scales && first <= most - span; ++first)
      if (fits(first))
        return true;
    if (least == 0)
      break;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Formats
//===----------------------------------------------------------------------===//

namespace {
/// The integers that a block of a format can hold.
class Range {
public:
  explicit Range(WeightFormat format)
      : hasMinimum(scalesOf(format).hasMinimum()), coding(codingOf(format)),
        hasZero(scalesOf(format).hasZero),
        least(coding.bits == 8 ? -127 : -static_cast<int>(coding.bias)),
        most(coding.bits == 8 ? 127 : least + (1 << coding.bits) - 1) {}

  /// The greatest magnitude.
  int magnitude() const { return std::max(most, -least); }
  bool find(Fit &fit, std::span<const float> x, StoredType type) const {
    return hasMinimum ? fit.findWithMinimum(x, type, most)
                      : fit.find(x, type, magnitude());
  }
  /// Whether it holds `fit`, perhaps with the signs changed; fills the block.
  bool fill(const Fit &fit, int64_t count, WeightBlock &block) const;

  const bool hasMinimum;

private:
  const CodingInfo coding;
  const bool hasZero;
  const int least, most;
};
} // namespace

bool Range::fill(const Fit &fit, int64_t count, WeightBlock &block) const {
  const auto [from, to] = std::ranges::minmax(
      std::span(fit.integers).first(static_cast<size_t>(count)));
  const int zero = hasZero ? std::max(0, -from) : 0;
  int sign = 1;
  if (from + zero < least || to + zero > most) {
    sign = -1;
    if (hasZero || -to < least || -from > most)
      return false;
  }
  block.scale = f32ToF16(static_cast<float>(sign) * fit.scale);
  block.minimum = f32ToF16(hasMinimum ? fit.minimum : static_cast<float>(zero));
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] =
        static_cast<uint8_t>(sign * fit.integers[i] + zero + coding.bias);
  return true;
}

/// Formats with one scale a block: first those without minimums, then those
/// with minimums, each in the order of their bytes.
static std::vector<WeightFormat> linearFormats(int64_t k) {
  std::vector<WeightFormat> formats;
  for (WeightFormat format : kWeightFormats)
    if (isQuantized(format) && !codingOf(format).hasCodebook() &&
        !scalesOf(format).hasSubBlocks())
      formats.push_back(format);
  std::ranges::sort(formats, {}, [k](WeightFormat format) {
    return std::tuple(scalesOf(format).hasMinimum(), panelBytes(format, k),
                      format);
  });
  return formats;
}

namespace {
/// Finds the integers of one matrix in one format.
class GridFinder {
public:
  GridFinder(const WeightSource &source, StoredType type, WeightFormat format)
      : source(source), type(type), range(format), format(format),
        k(source.shape().k()) {}

  /// Sets the blocks of an output. Returns false if it does not fit.
  bool find(int64_t output, std::vector<WeightBlock> &blocks) const;
  std::unique_ptr<Owned> find(unsigned threads) const;

private:
  const WeightSource &source;
  const StoredType type;
  const Range range;
  const WeightFormat format;
  const int64_t k;
};
} // namespace

bool GridFinder::find(int64_t output, std::vector<WeightBlock> &blocks) const {
  const int64_t block = weightBlock(format);
  std::vector<float> values(static_cast<size_t>(k));
  source.read(output, 1, values.data());
  blocks.resize(static_cast<size_t>(ceilDiv(k, block)));
  for (int64_t begin = 0; begin < k; begin += block) {
    const int64_t count = std::min(block, k - begin);
    Fit fit;
    if (!range.find(fit,
                    std::span(values).subspan(static_cast<size_t>(begin),
                                              static_cast<size_t>(count)),
                    type) ||
        !range.fill(fit, count, blocks[static_cast<size_t>(begin / block)]))
      return false;
  }
  return true;
}

std::unique_ptr<Owned> GridFinder::find(unsigned threads) const {
  const int64_t outputs = source.shape().outputs();
  std::vector<WeightBlock> first;
  if (!find(0, first))
    return nullptr;
  auto result = std::make_unique<Owned>(
      source, placeOf(packedBytes(format, outputs, k)), format);
  std::atomic<bool> fits = true;
  parallelFor(static_cast<size_t>(outputs), threads, [&](size_t i, unsigned) {
    std::vector<WeightBlock> blocks;
    if (!fits)
      return;
    if (find(static_cast<int64_t>(i), blocks))
      result->set(static_cast<int64_t>(i), blocks);
    else
      fits = false;
  });
  return fits ? std::move(result) : nullptr;
}

std::unique_ptr<Owned> qwen::findGrid(const WeightSource &source,
                                      unsigned threads) {
  const std::optional<StoredType> type = source.floatType();
  if (!type || source.shape().k() % kGroup != 0)
    return nullptr;
  for (WeightFormat format : linearFormats(source.shape().k()))
    if (auto result = GridFinder(source, *type, format).find(threads))
      return result;
  return nullptr;
}

bool qwen::hasFewValues(const WeightSource &source) {
  constexpr size_t kFew = 3;
  std::set<float> found;
  std::vector<float> values(static_cast<size_t>(source.shape().k()));
  for (int64_t output = 0; output < source.shape().outputs(); ++output) {
    source.read(output, 1, values.data());
    for (float value : values)
      if (found.insert(value).second && found.size() > kFew)
        return false;
  }
  return true;
}
