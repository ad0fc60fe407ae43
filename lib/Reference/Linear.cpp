//===- Linear.cpp - Products with packed weights --------------------------===//

#include "qwen/Reference/Kernels.h"

#include "qwen/Reference/Float16.h"

#include <cmath>
#include <cstring>

using namespace qwen;

/// Stores one output: the bias and then the residual, one addition each.
static void store(float acc, const float *bias, const float *residual,
                  float *out, int64_t row, int64_t column, int64_t ld) {
  if (bias != nullptr)
    acc = acc + bias[column];
  if (residual != nullptr)
    acc = acc + residual[row * ld + column];
  out[row * ld + column] = acc;
}

void reference::linearF32(const float *x, const uint8_t *weights,
                          const float *bias, const float *residual, float *out,
                          int64_t m, int64_t k, int64_t ld, int64_t panelBegin,
                          int64_t panelEnd) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = panelBegin; p < panelEnd; ++p) {
      const uint8_t *panel = weights + p * panelBytes(WeightFormat::F32, k);
      for (int64_t c = 0; c < kPanelRows; ++c) {
        float acc = 0.0f;
        for (int64_t j = 0; j < k; ++j) {
          float w;
          std::memcpy(&w, panel + (j * kPanelRows + c) * 4, 4);
          acc = std::fma(w, x[i * k + j], acc);
        }
        store(acc, bias, residual, out, i, p * kPanelRows + c, ld);
      }
    }
}

/// Integer dot product of 32 activations with column `c` of a packed group.
static int32_t groupDot(const int8_t *q, const uint8_t *group, int64_t c) {
  const uint8_t *chunks = group + kPanelRows * 2;
  int32_t sum = 0;
  for (int64_t j = 0; j < 16; ++j) {
    const int byte = chunks[(j / 4 * kPanelRows + c) * 4 + j % 4];
    sum += q[j] * ((byte & 15) - 8) + q[j + 16] * ((byte >> 4) - 8);
  }
  return sum;
}

void reference::linearQ4_0(const int8_t *q, const float *d, const int32_t *,
                           const uint8_t *weights, const float *bias,
                           const float *residual, float *out, int64_t m,
                           int64_t k, int64_t ld, int64_t panelBegin,
                           int64_t panelEnd) {
  constexpr int64_t groupBytes = kPanelRows * int64_t{sizeof(BlockQ4_0)};
  const int64_t blocks = ceilDiv(k, kActivationBlock);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = panelBegin; p < panelEnd; ++p) {
      const uint8_t *panel = weights + p * panelBytes(WeightFormat::Q4_0, k);
      for (int64_t c = 0; c < kPanelRows; ++c) {
        float acc = 0.0f;
        for (int64_t begin = 0; begin < k; begin += kActivationBlock) {
          float t = 0.0f;
          for (int64_t j = begin; j < k && j < begin + kActivationBlock;
               j += kGroup) {
            const uint8_t *group = panel + j / kGroup * groupBytes;
            uint16_t scale;
            std::memcpy(&scale, group + c * 2, 2);
            const float isum =
                static_cast<float>(groupDot(q + i * k + j, group, c));
            const float dw = f16ToF32(scale);
            t = j == begin ? isum * dw : std::fma(isum, dw, t);
          }
          acc = std::fma(t, d[i * blocks + begin / kActivationBlock], acc);
        }
        store(acc, bias, residual, out, i, p * kPanelRows + c, ld);
      }
    }
}
