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

/// Value `i` of row `row`, of f32 or bf16.
template <WeightFormat Format>
float weightFloat(const uint8_t *panel, int64_t row, int64_t i) {
  const int64_t at = i * kPanelOutputs + row;
  if constexpr (Format == WeightFormat::F32) {
    float value;
    std::memcpy(&value, panel + at * 4, 4);
    return value;
  } else {
    uint16_t bits;
    std::memcpy(&bits, panel + at * 2, 2);
    return bf16ToF32(bits);
  }
}

/// The scale of row `row`'s block that holds value `i`.
template <WeightFormat Format>
float weightScale(const uint8_t *panel, int64_t row, int64_t i) {
  uint16_t bits;
  std::memcpy(
      &bits,
      panel + i / weightBlock(Format) * panelBlockBytes(Format) + row * 2, 2);
  return f16ToF32(bits);
}

/// The integer of value `i` of row `row`.
template <WeightFormat Format>
int weightInteger(const uint8_t *panel, int64_t row, int64_t i) {
  const int64_t block = i / weightBlock(Format),
                inBlock = i % weightBlock(Format);
  const uint8_t *chunks = panel + block * panelBlockBytes(Format) +
                          panelHeaderBytes(Format) +
                          inBlock / kGroup * panelGroupBytes(Format);
  const int64_t j = inBlock % kGroup;
  const auto byte = [&](int64_t at) {
    return chunks[(at / 4 * kPanelOutputs + row) * 4 + at % 4];
  };
  if constexpr (codingOf(Format).bits == 8)
    return static_cast<int8_t>(byte(j));
  else
    return (byte(j % 16) >> (j / 16 * 4) & 15) -
           static_cast<int>(codingOf(Format).bias);
}

} // namespace qwen::numerics

#endif // QWEN_LIB_NUMERICS_PACKEDWEIGHTS_H
