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

/// The scale of an output's block that holds value `i`.
template <WeightFormat Format>
float weightScale(const uint8_t *panel, int64_t output, int64_t i) {
  return f16ToF32(loadAs<uint16_t>(
      panel + i / weightBlock(Format) * panelBlockBytes(Format) + output * 2));
}

/// The minimum of that block.
template <WeightFormat Format>
float weightMinimum(const uint8_t *panel, int64_t output, int64_t i) {
  return weightScale<Format>(panel + kMinimumOffset, output, i);
}

/// The integer of value `i` of an output.
template <WeightFormat Format>
int weightInteger(const uint8_t *panel, int64_t output, int64_t i) {
  constexpr CodingInfo coding = codingOf(Format);
  const int64_t inBlock = i % weightBlock(Format), j = inBlock % kGroup;
  const uint8_t *chunks =
      panel + i / weightBlock(Format) * panelBlockBytes(Format) +
      panelHeaderBytes(Format) + inBlock / kGroup * panelGroupBytes(Format);
  const auto byte = [&](int64_t at) {
    return chunks[(at / 4 * kPanelOutputs + output) * 4 + at % 4];
  };
  const int code =
      coding.bits == 8 ? byte(j) : byte(j % 16) >> (j / 16 * 4) & 15;
  return coding.integerOf(static_cast<uint8_t>(code));
}

/// Value `i` of an output; exact but for the addition of a minimum.
template <WeightFormat Format>
float weightValue(const uint8_t *panel, int64_t output, int64_t i) {
  const int64_t at = i * kPanelOutputs + output;
  if constexpr (isQuantized(Format)) {
    const float value =
        static_cast<float>(weightInteger<Format>(panel, output, i)) *
        weightScale<Format>(panel, output, i);
    if constexpr (scalesOf(Format).hasMinimum)
      return value + weightMinimum<Format>(panel, output, i);
    else
      return value;
  } else if constexpr (codingOf(Format).bits == 32)
    return loadAs<float>(panel + at * 4);
  else
    return bf16ToF32(loadAs<uint16_t>(panel + at * 2));
}

} // namespace qwen::numerics

#endif // QWEN_LIB_NUMERICS_PACKEDWEIGHTS_H
