//===- PackedWeights.h - Values of packed matrices --------------*- C++ -*-===//
//
// Reading one weight of a panel (ABI/Blocks.h).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_NUMERICS_PACKEDWEIGHTS_H
#define QWEN_LIB_NUMERICS_PACKEDWEIGHTS_H

#include "qwen/ABI/Blocks.h"
#include "qwen/Numerics/Float16.h"

#include <cstring>

namespace qwen::numerics {

template <typename T> T loadAs(const uint8_t *bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

/// The header of the block of a panel that holds value `i`.
template <WeightFormat Format>
const uint8_t *weightHeader(const uint8_t *panel, int64_t i) {
  return panel + i / weightBlock(Format) * panelBlockBytes(Format);
}

/// Number `number` of the output's block that holds value `i`: 0 is the scale,
/// 1 the minimum or the zero point.
template <WeightFormat Format>
float weightNumber(const uint8_t *panel, int64_t output, int64_t i,
                   int64_t number) {
  return f16ToF32(loadAs<uint16_t>(weightHeader<Format>(panel, i) +
                                   number * kMinimumOffset + output * 2));
}

/// The stored bits of the integer that number `number` is multiplied with in
/// the sub-block that holds value `i`, if there are sub-blocks.
template <WeightFormat Format>
uint8_t weightSubBits(const uint8_t *panel, int64_t output, int64_t i,
                      int64_t number) {
  constexpr ScaleInfo scales = scalesOf(Format);
  const uint8_t *rows = weightHeader<Format>(panel, i) +
                        panelNumberBytes(Format) +
                        number * panelSubScaleBytes(Format) + output;
  const int64_t j = i % weightBlock(Format) / scales.subBlock;
  const auto row = [&](int64_t r) { return rows[r * kPanelOutputs]; };
  const int bits = scales.subBits == 8
                       ? row(j)
                       : (row(j / 2) >> (j % 2 * 4) & 15) |
                             (row(4 + j / 4) >> (j % 4 * 2) & 3) << 4;
  return static_cast<uint8_t>(bits);
}

/// Their integer; 1 without sub-blocks.
template <WeightFormat Format>
int weightSubInteger(const uint8_t *panel, int64_t output, int64_t i,
                     int64_t number) {
  constexpr ScaleInfo scales = scalesOf(Format);
  if constexpr (!scales.hasSubBlocks())
    return 1;
  else
    return scales.integerOf(weightSubBits<Format>(panel, output, i, number));
}

/// The code of value `i` of an output.
template <WeightFormat Format>
uint8_t weightCode(const uint8_t *panel, int64_t output, int64_t i) {
  constexpr CodingInfo coding = codingOf(Format);
  const int64_t inBlock = i % weightBlock(Format), j = inBlock % kGroup;
  const uint8_t *chunks = weightHeader<Format>(panel, i) +
                          panelHeaderBytes(Format) +
                          inBlock / kGroup * panelGroupBytes(Format);
  return codeIn<coding.bits>(j, [&](int64_t chunk) {
    return chunks[(chunk * kPanelOutputs + output) * kStepValues +
                  j % kStepValues];
  });
}

/// The integer of value `i` of an output.
template <WeightFormat Format>
int weightInteger(const uint8_t *panel, int64_t output, int64_t i) {
  constexpr CodingInfo coding = codingOf(Format);
  return coding.integerOf(weightCode<Format>(panel, output, i));
}

/// Value `i` of an output; docs/numerics.md has its roundings.
template <WeightFormat Format>
float weightValue(const uint8_t *panel, int64_t output, int64_t i) {
  const int64_t at = i * kPanelOutputs + output;
  if constexpr (isQuantized(Format)) {
    const auto number = [&](int64_t number) {
      return static_cast<float>(
                 weightSubInteger<Format>(panel, output, i, number)) *
             weightNumber<Format>(panel, output, i, number);
    };
    auto integer = static_cast<float>(weightInteger<Format>(panel, output, i));
    if constexpr (scalesOf(Format).hasZero)
      integer = integer - number(1);
    const float value = integer * number(0);
    if constexpr (scalesOf(Format).hasMinimum())
      return value + number(1);
    else
      return value;
  } else if constexpr (codingOf(Format).bits == 32)
    return loadAs<float>(panel + at * 4);
  else
    return bf16ToF32(loadAs<uint16_t>(panel + at * 2));
}

} // namespace qwen::numerics

#endif // QWEN_LIB_NUMERICS_PACKEDWEIGHTS_H
