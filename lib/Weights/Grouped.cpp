//===- Grouped.cpp - Integers in groups of columns ------------------------===//

#include "Grouped.h"

#include "qwen/Numerics/Float16.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Formats
//===----------------------------------------------------------------------===//

namespace {
/// The format that keeps the codes of a grouping.
struct Mapping {
  GroupRule rule;
  int mostBits;
  int64_t group;
  /// Whether groups may be any multiple of `group`.
  bool multiples;
  WeightFormat format;
};
} // namespace

/// The first row counts.
static constexpr Mapping kMappings[] = {
    {GroupRule::Symmetric, 4, 128, true, WeightFormat::Q4_G128},
    {GroupRule::Symmetric, 4, 32, true, WeightFormat::Q4_0},
    {GroupRule::Zero, 4, 128, true, WeightFormat::Q4_Z_128},
    {GroupRule::Zero, 4, 64, false, WeightFormat::Q4_Z_64},
    {GroupRule::Zero, 4, 32, false, WeightFormat::Q4_Z_32},
    {GroupRule::Minimum, 4, 128, true, WeightFormat::Q4_M_128},
    {GroupRule::Minimum, 4, 64, false, WeightFormat::Q4_M_64},
    {GroupRule::Minimum, 4, 32, false, WeightFormat::Q4_M_32},
    {GroupRule::Minimum, 5, 32, true, WeightFormat::Q5_M_32},
};

static WeightFormat formatOf(const Grouping &grouping) {
  for (const Mapping &row : kMappings)
    if (row.rule == grouping.rule && grouping.bits <= row.mostBits &&
        (row.multiples ? grouping.group % row.group == 0
                       : grouping.group == row.group))
      return row.format;
  return WeightFormat::Q8_0;
}

/// Whether `format` has the rule of `grouping`, all of its integers, and blocks
/// that divide its groups.
static bool holds(WeightFormat format, const Grouping &grouping) {
  const CodingInfo &coding = codingOf(format);
  const ScaleInfo &scales = scalesOf(format);
  if (!isQuantized(format) || coding.hasCodebook() || scales.hasSubBlocks() ||
      grouping.group % weightBlock(format) != 0 ||
      scales.hasMinimum() != (grouping.rule == GroupRule::Minimum))
    return false;
  // Without a zero point, q - z needs a sign.
  const bool isSigned = scales.numbers == 1;
  return coding.bits >=
         grouping.bits + (isSigned && grouping.rule == GroupRule::Zero);
}

/// Whether f16 holds a finite number.
static bool isHalf(float value) {
  return std::isfinite(value) && f16ToF32(f32ToF16(value)) == value;
}

//===----------------------------------------------------------------------===//
// GroupedSource
//===----------------------------------------------------------------------===//

struct GroupedSource::Numbers {
  /// [output][group]; the offsets of Symmetric are its zero point.
  std::vector<float> scales, offsets;

  /// Whether `format`, which holds the grouping, holds number `i`, too.
  bool areHeld(WeightFormat format, const Grouping &codes, size_t i) const {
    const bool isInteger = offsets[i] == std::trunc(offsets[i]) &&
                           offsets[i] >= 0 &&
                           offsets[i] < float(1 << codes.bits);
    return isHalf(scales[i]) &&
           (scalesOf(format).numbers == 2 ? isHalf(offsets[i]) : isInteger);
  }
};

GroupedSource::GroupedSource(const StoredTensor &named, std::string_view form,
                             WeightShape shape, uint64_t bytes,
                             Grouping grouping)
    : grouping(grouping), text(describeTensor(named)),
      formName(std::string(form) + " " + std::to_string(grouping.bits) +
               "-bit"),
      sizes(std::move(shape)), totalBytes(bytes) {}

GroupedSource::GroupedSource(const GroupedSource &source, GroupRule rule,
                             std::string_view change, uint64_t bytes)
    : grouping{source.grouping.bits, source.grouping.group, rule},
      text(source.text), formName(source.formName + std::string(change)),
      sizes(source.sizes), totalBytes(source.totalBytes + bytes) {}

const GroupedSource::Columns &GroupedSource::columns() const {
  std::call_once(once, [&] { found = findColumns(); });
  return found;
}

GroupedSource::Columns GroupedSource::findColumns() const {
  const std::span<const int32_t> groupOf = groups();
  Columns result;
  for (size_t i = 0; i < groupOf.size(); ++i)
    result.scattered |= groupOf[i] != static_cast<int64_t>(i) / grouping.group;
  if (!result.scattered)
    return result;
  // Where the next column of each group goes.
  std::vector<int64_t> filled(static_cast<size_t>(groupCount()));
  result.order.resize(groupOf.size());
  for (size_t i = 0; i < groupOf.size(); ++i) {
    int64_t &count = filled[static_cast<size_t>(groupOf[i])];
    if (count == grouping.group) {
      result.order.clear();
      return result;
    }
    result.order[static_cast<size_t>(groupOf[i] * grouping.group + count++)] =
        static_cast<int32_t>(i);
  }
  return result;
}

GroupedSource::Numbers GroupedSource::numbersOf(int64_t first,
                                                int64_t count) const {
  const auto size = static_cast<size_t>(count * groupCount());
  Numbers numbers = {std::vector<float>(size),
                     std::vector<float>(size, float(grouping.middle()))};
  readNumbers(first, count, numbers.scales.data(),
              grouping.rule == GroupRule::Symmetric ? nullptr
                                                    : numbers.offsets.data());
  return numbers;
}

/// The values of `count` codes of one group.
static void dequantize(GroupRule rule, const uint8_t *codes, int64_t count,
                       float scale, float offset, float *values) {
  if (rule == GroupRule::Minimum)
    for (int64_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(codes[i]) * scale + offset;
  else
    for (int64_t i = 0; i < count; ++i)
      values[i] = (static_cast<float>(codes[i]) - offset) * scale;
}

void GroupedSource::read(int64_t first, int64_t count, float *values) const {
  const int64_t k = sizes.k(), groupsOfK = groupCount();
  const std::span<const int32_t> groupOf = groups();
  // Columns that follow each other in a group.
  const int64_t run = groupOf.empty() ? grouping.group : 1;
  std::vector<uint8_t> codes(
      static_cast<size_t>(std::min(count, kPanelOutputs) * k));
  for (int64_t done = 0; done < count; done += kPanelOutputs) {
    const int64_t some = std::min(kPanelOutputs, count - done);
    readCodes(first + done, some, codes.data());
    const Numbers numbers = numbersOf(first + done, some);
    const uint8_t *from = codes.data();
    for (int64_t i = 0; i < some; ++i)
      for (int64_t j = 0; j < k; j += run, from += run, values += run) {
        const int64_t group =
            groupOf.empty() ? j / run : groupOf[static_cast<size_t>(j)];
        const auto at = static_cast<size_t>(i * groupsOfK + group);
        dequantize(grouping.rule, from, run, numbers.scales[at],
                   numbers.offsets[at], values);
      }
  }
}

WeightFormat GroupedSource::keptFormat() const {
  const WeightFormat format = formatOf(grouping);
  if (format == WeightFormat::Q8_0)
    return format;
  const int64_t outputs = sizes.outputs();
  for (int64_t first = 0; first < outputs; first += kPanelOutputs) {
    const int64_t count = std::min(kPanelOutputs, outputs - first);
    if (kept(format, first, count) != (OutputSet{1} << count) - 1)
      return WeightFormat::Q8_0;
  }
  return format;
}

OutputSet GroupedSource::kept(WeightFormat format, int64_t first,
                              int64_t count) const {
  if (!holds(format, grouping) ||
      (columns().scattered && columns().order.empty()))
    return 0;
  const Numbers numbers = numbersOf(first, count);
  const auto groupsOfK = static_cast<size_t>(groupCount());
  OutputSet outputs = 0;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    bool areHeld = true;
    for (size_t j = 0; j < groupsOfK; ++j)
      areHeld &= numbers.areHeld(format, grouping, i * groupsOfK + j);
    outputs |= OutputSet{areHeld} << i;
  }
  return outputs;
}

numerics::EncodeError GroupedSource::keep(WeightFormat format, int64_t first,
                                          OutputSet outputs, int64_t lane,
                                          uint8_t *panel) const {
  const int64_t count = std::bit_width(outputs), k = sizes.k();
  const int64_t block = weightBlock(format), groupsOfK = groupCount();
  const auto bias = static_cast<int>(codingOf(format).bias);
  const bool hasOffset = scalesOf(format).numbers == 2;
  const std::span<const int32_t> order = columnOrder();
  std::vector<uint8_t> codes(static_cast<size_t>(count * k));
  readCodes(first, count, codes.data());
  const Numbers numbers = numbersOf(first, count);
  std::vector<numerics::WeightBlock> blocks(static_cast<size_t>(k / block));
  for (int64_t i = 0; i < count; ++i) {
    if ((outputs >> i & 1) == 0)
      continue;
    const uint8_t *own = codes.data() + i * k;
    for (int64_t begin = 0; begin < k; begin += block) {
      const auto at =
          static_cast<size_t>(i * groupsOfK + begin / grouping.group);
      numerics::WeightBlock &to = blocks[static_cast<size_t>(begin / block)];
      to.scale = f32ToF16(numbers.scales[at]);
      to.minimum = hasOffset ? f32ToF16(numbers.offsets[at]) : 0;
      const int shift =
          hasOffset ? 0 : bias - static_cast<int>(numbers.offsets[at]);
      for (int64_t j = 0; j < block; ++j) {
        const int64_t column =
            order.empty() ? begin + j : order[static_cast<size_t>(begin + j)];
        to.codes[j] = static_cast<uint8_t>(own[column] + shift);
      }
    }
    numerics::putOutput(format, blocks.data(), k, lane + i, panel);
  }
  return {};
}
