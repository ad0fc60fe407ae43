//===- Encode.cpp - Quantizing and packing weights ------------------------===//

#include "qwen/Numerics/Encode.h"

#include "qwen/Numerics/Float16.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::numerics;

std::string_view qwen::numerics::encodeStatusMessage(EncodeStatus status) {
  switch (status) {
  case EncodeStatus::Ok:
    return "";
  case EncodeStatus::NotFinite:
    return "has a value that is not finite";
  case EncodeStatus::ScaleOverflow:
    return "has a block whose scale overflows f16";
  case EncodeStatus::ValueOverflow:
    return "has a value that overflows bf16";
  }
  __builtin_unreachable();
}

/// Finds the first value of largest magnitude.
static EncodeStatus findLargest(const float *x, int64_t count, float &largest) {
  largest = x[0];
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i]))
      return EncodeStatus::NotFinite;
    if (std::fabs(x[i]) > std::fabs(largest))
      largest = x[i];
  }
  return EncodeStatus::Ok;
}

static bool isFiniteF16(uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

EncodeStatus qwen::numerics::encodeQ4(const float *x, int64_t count,
                                      uint16_t &scale, uint8_t *q) {
  float largest;
  if (const EncodeStatus status = findLargest(x, count, largest);
      status != EncodeStatus::Ok)
    return status;
  const float d = largest / -8.0f;
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  const uint16_t half = f32ToF16(d);
  if (!isFiniteF16(half))
    return EncodeStatus::ScaleOverflow;
  scale = half;
  for (int64_t i = 0; i < count; ++i) {
    const float value = std::trunc(x[i] * inverse + 8.5f);
    // Not >= 0 includes NaN, 0 times the infinite reciprocal of a scale below
    // 2^-128; the stored scale is zero then, and q does not matter.
    q[i] = !(value >= 0.0f) ? 0
           : value >= 15.0f ? 15
                            : static_cast<uint8_t>(value);
  }
  return EncodeStatus::Ok;
}

EncodeStatus qwen::numerics::encodeQ8_0(const float x[32], BlockQ8_0 &block) {
  float largest;
  if (const EncodeStatus status = findLargest(x, kGroup, largest);
      status != EncodeStatus::Ok)
    return status;
  const float d = std::fabs(largest) / 127.0f;
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  const uint16_t scale = f32ToF16(d);
  if (!isFiniteF16(scale))
    return EncodeStatus::ScaleOverflow;
  block.d = scale;
  for (int64_t i = 0; i < kGroup; ++i) {
    const float value = std::round(x[i] * inverse);
    // Outside only where the reciprocal of a scale below 2^-128 is infinite;
    // the stored scale is zero then, and q does not matter.
    block.q[i] = std::fabs(value) <= 127.0f ? static_cast<int8_t>(value) : 0;
  }
  return EncodeStatus::Ok;
}

EncodeStatus qwen::numerics::encodeQ4_0(const float x[32], BlockQ4_0 &block) {
  uint8_t q[32];
  if (const EncodeStatus status = encodeQ4(x, kGroup, block.d, q);
      status != EncodeStatus::Ok)
    return status;
  for (int j = 0; j < 16; ++j)
    block.q[j] = static_cast<uint8_t>(q[j] | q[j + 16] << 4);
  return EncodeStatus::Ok;
}

void qwen::numerics::decodeQ4_0(const BlockQ4_0 &block, float x[32]) {
  const float d = f16ToF32(block.d);
  for (int j = 0; j < 16; ++j) {
    x[j] = static_cast<float>((block.q[j] & 15) - 8) * d;
    x[j + 16] = static_cast<float>((block.q[j] >> 4) - 8) * d;
  }
}

static EncodeStatus packPanelF32(const float *const rows[kPanelOutputs],
                                 int64_t k, uint8_t *panel) {
  for (int64_t r = 0; r < kPanelOutputs; ++r)
    for (int64_t i = 0; i < k; ++i) {
      const float value = rows[r] != nullptr ? rows[r][i] : 0.0f;
      if (!std::isfinite(value))
        return EncodeStatus::NotFinite;
      std::memcpy(panel + (i * kPanelOutputs + r) * 4, &value, 4);
    }
  return EncodeStatus::Ok;
}

static EncodeStatus packPanelBF16(const float *const rows[kPanelOutputs],
                                  int64_t k, uint8_t *panel) {
  for (int64_t r = 0; r < kPanelOutputs; ++r)
    for (int64_t i = 0; i < k; ++i) {
      const float value = rows[r] != nullptr ? rows[r][i] : 0.0f;
      if (!std::isfinite(value))
        return EncodeStatus::NotFinite;
      const uint16_t half = f32ToBF16(value);
      if (!std::isfinite(bf16ToF32(half)))
        return EncodeStatus::ValueOverflow;
      std::memcpy(panel + (i * kPanelOutputs + r) * 2, &half, 2);
    }
  return EncodeStatus::Ok;
}

/// Puts a row's `bytes` of a group, 4 at a time, into the group's chunks.
static void interleave(const uint8_t *bytes, int64_t count, int64_t row,
                       uint8_t *chunks) {
  for (int64_t begin = 0; begin < count; begin += 4)
    std::memcpy(chunks + begin * kPanelOutputs + row * 4, bytes + begin, 4);
}

static EncodeStatus packPanelQ8_0(const float *const rows[kPanelOutputs],
                                  int64_t k, uint8_t *panel) {
  for (int64_t group = 0; group < k / kGroup; ++group) {
    uint8_t *scales = panel + group * panelBlockBytes(WeightFormat::Q8_0);
    for (int64_t r = 0; r < kPanelOutputs; ++r) {
      BlockQ8_0 block = {};
      if (rows[r] != nullptr) {
        const EncodeStatus status = encodeQ8_0(rows[r] + group * kGroup, block);
        if (status != EncodeStatus::Ok)
          return status;
      }
      std::memcpy(scales + r * 2, &block.d, 2);
      interleave(reinterpret_cast<const uint8_t *>(block.q), kGroup, r,
                 scales + panelHeaderBytes(WeightFormat::Q8_0));
    }
  }
  return EncodeStatus::Ok;
}

/// q4_0 and q4_g128, which differ in the size of blocks.
static EncodeStatus packPanelQ4(WeightFormat format,
                                const float *const rows[kPanelOutputs],
                                int64_t k, uint8_t *panel) {
  const int64_t most = weightBlock(format);
  for (int64_t begin = 0; begin < k; begin += most) {
    uint8_t *scales = panel + begin / most * panelBlockBytes(format);
    const int64_t count = std::min(most, k - begin);
    for (int64_t r = 0; r < kPanelOutputs; ++r) {
      uint16_t d = 0;
      uint8_t q[128];
      std::memset(q, 8, sizeof(q));
      if (rows[r] != nullptr) {
        const EncodeStatus status = encodeQ4(rows[r] + begin, count, d, q);
        if (status != EncodeStatus::Ok)
          return status;
      }
      std::memcpy(scales + r * 2, &d, 2);
      for (int64_t i = 0; i < count; i += kGroup) {
        uint8_t bytes[kGroup / 2];
        for (int64_t j = 0; j < kGroup / 2; ++j)
          bytes[j] =
              static_cast<uint8_t>(q[i + j] | q[i + j + kGroup / 2] << 4);
        interleave(bytes, kGroup / 2, r,
                   scales + panelHeaderBytes(format) +
                       i / kGroup * panelGroupBytes(format));
      }
    }
  }
  return EncodeStatus::Ok;
}

EncodeStatus qwen::numerics::packPanel(WeightFormat format,
                                       const float *const rows[kPanelOutputs],
                                       int64_t k, uint8_t *panel) {
  switch (format) {
  case WeightFormat::F32:
    return packPanelF32(rows, k, panel);
  case WeightFormat::BF16:
    return packPanelBF16(rows, k, panel);
  case WeightFormat::Q8_0:
    return packPanelQ8_0(rows, k, panel);
  case WeightFormat::Q4_0:
  case WeightFormat::Q4_G128:
    return packPanelQ4(format, rows, k, panel);
  }
  __builtin_unreachable();
}
