//===- Encode.cpp - Quantizing and packing weights ------------------------===//

#include "qwen/Reference/Encode.h"

#include "qwen/Reference/Float16.h"

#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::reference;

std::string_view qwen::reference::encodeStatusMessage(EncodeStatus status) {
  switch (status) {
  case EncodeStatus::Ok:
    return "";
  case EncodeStatus::NotFinite:
    return "has a value that is not finite";
  case EncodeStatus::ScaleOverflow:
    return "has a block whose scale overflows f16";
  }
  __builtin_unreachable();
}

EncodeStatus qwen::reference::encodeQ4_0(const float x[32], BlockQ4_0 &block) {
  float largest = x[0];
  for (int i = 0; i < 32; ++i) {
    if (!std::isfinite(x[i]))
      return EncodeStatus::NotFinite;
    if (std::fabs(x[i]) > std::fabs(largest))
      largest = x[i];
  }
  const float d = largest / -8.0f;
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  const uint16_t scale = f32ToF16(d);
  if ((scale & 0x7c00) == 0x7c00)
    return EncodeStatus::ScaleOverflow;

  uint8_t q[32];
  for (int i = 0; i < 32; ++i) {
    const float value = std::trunc(x[i] * inverse + 8.5f);
    // Not >= 0 includes NaN, 0 times the infinite reciprocal of a scale below
    // 2^-128; the stored scale is zero then, and q does not matter.
    q[i] = !(value >= 0.0f) ? 0
           : value >= 15.0f ? 15
                            : static_cast<uint8_t>(value);
  }
  block.d = scale;
  for (int j = 0; j < 16; ++j)
    block.q[j] = static_cast<uint8_t>(q[j] | q[j + 16] << 4);
  return EncodeStatus::Ok;
}

void qwen::reference::decodeQ4_0(const BlockQ4_0 &block, float x[32]) {
  const float d = f16ToF32(block.d);
  for (int j = 0; j < 16; ++j) {
    x[j] = static_cast<float>((block.q[j] & 15) - 8) * d;
    x[j + 16] = static_cast<float>((block.q[j] >> 4) - 8) * d;
  }
}

static EncodeStatus packPanelF32(const float *const rows[kPanelRows], int64_t k,
                                 uint8_t *panel) {
  for (int64_t r = 0; r < kPanelRows; ++r)
    for (int64_t i = 0; i < k; ++i) {
      const float value = rows[r] != nullptr ? rows[r][i] : 0.0f;
      if (!std::isfinite(value))
        return EncodeStatus::NotFinite;
      std::memcpy(panel + (i * kPanelRows + r) * 4, &value, 4);
    }
  return EncodeStatus::Ok;
}

static EncodeStatus packPanelQ4_0(const float *const rows[kPanelRows],
                                  int64_t k, uint8_t *panel) {
  BlockQ4_0 zero = {};
  std::memset(zero.q, 0x88, sizeof(zero.q));
  for (int64_t group = 0; group < k / kGroup; ++group) {
    uint8_t *scales = panel + group * kPanelRows * int64_t{sizeof(BlockQ4_0)};
    uint8_t *chunks = scales + kPanelRows * 2;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      BlockQ4_0 block = zero;
      if (rows[r] != nullptr) {
        const EncodeStatus status = encodeQ4_0(rows[r] + group * kGroup, block);
        if (status != EncodeStatus::Ok)
          return status;
      }
      std::memcpy(scales + r * 2, &block.d, 2);
      for (int64_t chunk = 0; chunk < 4; ++chunk)
        std::memcpy(chunks + (chunk * kPanelRows + r) * 4, block.q + chunk * 4,
                    4);
    }
  }
  return EncodeStatus::Ok;
}

EncodeStatus qwen::reference::packPanel(WeightFormat format,
                                        const float *const rows[kPanelRows],
                                        int64_t k, uint8_t *panel) {
  return format == WeightFormat::F32 ? packPanelF32(rows, k, panel)
                                     : packPanelQ4_0(rows, k, panel);
}
