//===- Linear.cpp - Products with packed weights --------------------------===//

#include "qwen/Numerics/Kernels.h"

#include "PackedWeights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::numerics;

/// Stores one output: the bias and then the residual, one addition each.
static void store(float acc, const float *bias, const float *residual,
                  float *out, int64_t row, int64_t column, int64_t ld) {
  if (bias != nullptr)
    acc = acc + bias[column];
  if (residual != nullptr)
    acc = acc + residual[row * ld + column];
  out[row * ld + column] = acc;
}

/// The products with f32 and bf16 weights.
template <WeightFormat Format>
static void linearFloat(const float *x, const uint8_t *weights,
                        const float *bias, const float *residual, float *out,
                        int64_t m, int64_t k, int64_t ld, int64_t panelBegin,
                        int64_t panelEnd) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = panelBegin; p < panelEnd; ++p) {
      const uint8_t *panel = weights + p * panelBytes(Format, k);
      for (int64_t c = 0; c < kPanelOutputs; ++c) {
        float acc = 0.0f;
        for (int64_t j = 0; j < k; ++j)
          acc = std::fma(weightFloat<Format>(panel, c, j), x[i * k + j], acc);
        store(acc, bias, residual, out, i, p * kPanelOutputs + c, ld);
      }
    }
}

void numerics::linearF32(const float *x, const uint8_t *weights,
                         const float *bias, const float *residual, float *out,
                         int64_t m, int64_t k, int64_t ld, int64_t panelBegin,
                         int64_t panelEnd) {
  linearFloat<WeightFormat::F32>(x, weights, bias, residual, out, m, k, ld,
                                 panelBegin, panelEnd);
}

void numerics::linearBF16(const float *x, const uint8_t *weights,
                          const float *bias, const float *residual, float *out,
                          int64_t m, int64_t k, int64_t ld, int64_t panelBegin,
                          int64_t panelEnd) {
  linearFloat<WeightFormat::BF16>(x, weights, bias, residual, out, m, k, ld,
                                  panelBegin, panelEnd);
}

/// The products with quantized weights. A block of the weights is a group of
/// the sum: 32 or 128 values with one scale.
template <WeightFormat Format>
static void
linearQuantized(const int8_t *q, const float *d, const uint8_t *weights,
                const float *bias, const float *residual, float *out, int64_t m,
                int64_t k, int64_t ld, int64_t panelBegin, int64_t panelEnd) {
  constexpr int64_t group = weightBlock(Format);
  const int64_t blocks = ceilDiv(k, kActivationBlock);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = panelBegin; p < panelEnd; ++p) {
      const uint8_t *panel = weights + p * panelBytes(Format, k);
      for (int64_t c = 0; c < kPanelOutputs; ++c) {
        float acc = 0.0f;
        for (int64_t begin = 0; begin < k; begin += kActivationBlock) {
          const int64_t end = std::min(k, begin + kActivationBlock);
          float t = 0.0f;
          for (int64_t j = begin; j < end; j += group) {
            int32_t sum = 0;
            for (int64_t l = j; l < std::min(end, j + group); ++l)
              sum += q[i * k + l] * weightInteger<Format>(panel, c, l);
            const auto isum = static_cast<float>(sum);
            const float dw = weightScale<Format>(panel, c, j);
            t = j == begin ? isum * dw : std::fma(isum, dw, t);
          }
          acc = std::fma(t, d[i * blocks + begin / kActivationBlock], acc);
        }
        store(acc, bias, residual, out, i, p * kPanelOutputs + c, ld);
      }
    }
}

void numerics::linearQ8_0(const int8_t *q, const float *d, const int32_t *,
                          const uint8_t *weights, const float *bias,
                          const float *residual, float *out, int64_t m,
                          int64_t k, int64_t ld, int64_t panelBegin,
                          int64_t panelEnd) {
  linearQuantized<WeightFormat::Q8_0>(q, d, weights, bias, residual, out, m, k,
                                      ld, panelBegin, panelEnd);
}

void numerics::linearQ4_0(const int8_t *q, const float *d, const int32_t *,
                          const uint8_t *weights, const float *bias,
                          const float *residual, float *out, int64_t m,
                          int64_t k, int64_t ld, int64_t panelBegin,
                          int64_t panelEnd) {
  linearQuantized<WeightFormat::Q4_0>(q, d, weights, bias, residual, out, m, k,
                                      ld, panelBegin, panelEnd);
}

void numerics::linearQ4_G128(const int8_t *q, const float *d, const int32_t *,
                             const uint8_t *weights, const float *bias,
                             const float *residual, float *out, int64_t m,
                             int64_t k, int64_t ld, int64_t panelBegin,
                             int64_t panelEnd) {
  linearQuantized<WeightFormat::Q4_G128>(q, d, weights, bias, residual, out, m,
                                         k, ld, panelBegin, panelEnd);
}
