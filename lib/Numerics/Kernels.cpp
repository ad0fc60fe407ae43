//===- Kernels.cpp - References that read a format, and all by kind -------===//

#include "qwen/Numerics/Kernels.h"

#include "PackedWeights.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace qwen;
using namespace qwen::numerics;

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// The format of weights that a reference reads.
template <KernelFormat Format>
static constexpr auto kWeights =
    static_cast<WeightFormat>(static_cast<int>(Format) - kFirstWeightFormat);

/// Stores product(token, panel, output of the panel) and adds the bias and then
/// the residual, one addition each.
template <WeightFormat Format, typename Product>
static void storeOutputs(const uint8_t *weights, const float *bias,
                         const float *residual, float *out, int64_t m,
                         int64_t k, int64_t ld, int64_t panelBegin,
                         int64_t panelEnd, Product product) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t n = panelBegin * kPanelOutputs; n < panelEnd * kPanelOutputs;
         ++n) {
      const uint8_t *panel =
          weights + n / kPanelOutputs * panelBytes(Format, k);
      float acc = product(i, panel, n % kPanelOutputs);
      if (bias != nullptr)
        acc = acc + bias[n];
      if (residual != nullptr)
        acc = acc + residual[i * ld + n];
      out[i * ld + n] = acc;
    }
}

template <KernelFormat Format>
static void linearF32(const float *x, const uint8_t *weights, const float *bias,
                      const float *residual, float *out, int64_t m, int64_t k,
                      int64_t ld, int64_t panelBegin, int64_t panelEnd) {
  storeOutputs<kWeights<Format>>(
      weights, bias, residual, out, m, k, ld, panelBegin, panelEnd,
      [&](int64_t i, const uint8_t *panel, int64_t output) {
        float acc = 0.0f;
        for (int64_t j = 0; j < k; ++j)
          acc = std::fma(weightValue<kWeights<Format>>(panel, output, j),
                         x[i * k + j], acc);
        return acc;
      });
}

template <KernelFormat Format>
static void linearQ8(const int8_t *q, const float *d, const int32_t *,
                     const uint8_t *weights, const float *bias,
                     const float *residual, float *out, int64_t m, int64_t k,
                     int64_t ld, int64_t panelBegin, int64_t panelEnd) {
  constexpr int64_t size = weightBlock(kWeights<Format>);
  const int64_t blocks = ceilDiv(k, kActivationBlock);
  storeOutputs<kWeights<Format>>(
      weights, bias, residual, out, m, k, ld, panelBegin, panelEnd,
      [&](int64_t i, const uint8_t *panel, int64_t output) {
        float acc = 0.0f;
        for (int64_t begin = 0; begin < k; begin += kActivationBlock) {
          const int64_t end = std::min(k, begin + kActivationBlock);
          float t = 0.0f;
          for (int64_t j = begin; j < end; j += size) {
            int32_t dot = 0, sum = 0;
            for (int64_t l = j; l < std::min(end, j + size); ++l) {
              dot += q[i * k + l] *
                     weightInteger<kWeights<Format>>(panel, output, l);
              sum += q[i * k + l];
            }
            const auto isum = static_cast<float>(dot);
            const float dw = weightScale<kWeights<Format>>(panel, output, j);
            t = j == begin ? isum * dw : std::fma(isum, dw, t);
            if constexpr (scalesOf(kWeights<Format>).hasMinimum)
              t = std::fma(static_cast<float>(sum),
                           weightMinimum<kWeights<Format>>(panel, output, j),
                           t);
          }
          acc = std::fma(t, d[i * blocks + begin / kActivationBlock], acc);
        }
        return acc;
      });
}

template <KernelFormat Format>
static void embed(const uint8_t *weights, int32_t id, int64_t k, float *out) {
  const uint8_t *panel =
      weights + id / kPanelOutputs * panelBytes(kWeights<Format>, k);
  for (int64_t i = 0; i < k; ++i)
    out[i] = weightValue<kWeights<Format>>(panel, id % kPanelOutputs, i);
}

//===----------------------------------------------------------------------===//
// The cache
//===----------------------------------------------------------------------===//

/// A number of the cache, as its bits lie in memory.
template <KernelFormat Format>
using Stored = std::conditional_t<Format == KernelFormat::F32, float, uint16_t>;

static float widen(float value) { return value; }
static float widen(uint16_t value) { return f16ToF32(value); }

template <KernelFormat Format>
static void attentionScores(const float *q, const void *kPage, float scale,
                            float *s, int64_t queries, int64_t headDim,
                            int64_t n, const void *) {
  const auto *keys = static_cast<const Stored<Format> *>(kPage);
  for (int64_t g = 0; g < queries; ++g)
    for (int64_t j = 0; j < n; ++j) {
      float acc = 0.0f;
      for (int64_t i = 0; i < headDim; ++i)
        acc =
            std::fma(q[g * headDim + i], widen(keys[i * kPageTokens + j]), acc);
      s[g * kPageTokens + j] = acc * scale;
    }
}

template <KernelFormat Format>
static void attentionValues(const float *p, const void *vPage, float *o,
                            int64_t queries, int64_t headDim, int64_t n,
                            const void *) {
  const auto *values = static_cast<const Stored<Format> *>(vPage);
  for (int64_t g = 0; g < queries; ++g)
    for (int64_t i = 0; i < headDim; ++i) {
      float acc = 0.0f;
      for (int64_t j = 0; j < n; ++j)
        acc = std::fma(p[g * kPageTokens + j], widen(values[j * headDim + i]),
                       acc);
      o[g * headDim + i] = acc;
    }
}

template <KernelFormat Format, int64_t Stride>
static int32_t append(const float *x, int64_t headDim, void *slot) {
  auto *out = static_cast<Stored<Format> *>(slot);
  int32_t flag = 0;
  for (int64_t i = 0; i < headDim; ++i) {
    if constexpr (Format == KernelFormat::F32)
      out[i * Stride] = x[i];
    else
      out[i * Stride] = f32ToF16(x[i]);
    const float stored = widen(out[i * Stride]);
    flag |= checkFinite(&stored, 1);
  }
  return flag;
}

template <KernelFormat Format>
static int32_t appendK(const float *x, int64_t headDim, void *slot) {
  return append<Format, kPageTokens>(x, headDim, slot);
}

template <KernelFormat Format>
static int32_t appendV(const float *x, int64_t headDim, void *slot) {
  return append<Format, 1>(x, headDim, slot);
}

//===----------------------------------------------------------------------===//
// By kind
//===----------------------------------------------------------------------===//

/// instance.operator()<Format>() for `format`, one that the kind reads.
template <KernelOp Op, typename Instance>
static KernelFn<Op> *instanceFor(KernelFormat format, Instance instance) {
  KernelFn<Op> *result = nullptr;
  const auto offer = [&]<KernelFormat Format>() {
    if constexpr ((infoOf(Op).reads & setOf(Format)) != 0)
      if (format == Format)
        result = instance.template operator()<Format>();
  };
  offer.template operator()<KernelFormat::F16>();
#define QWEN_WEIGHT_FORMAT(Id, ...)                                            \
  offer.template operator()<KernelFormat::Id>();
#include "qwen/ABI/WeightFormats.def"
  return result;
}

template <KernelOp Op>
KernelFn<Op> *numerics::reference([[maybe_unused]] KernelFormat format) {
#define QWEN_KERNEL_OP(Kind, Function, Provider, Reads, ...)                   \
  if constexpr (Op == KernelOp::Kind)                                          \
    return QWEN_REFERENCE_##Reads(                                             \
        Function, (instanceFor<Op>(format, []<KernelFormat Format>() {         \
          return &Function<Format>;                                            \
        })));
#include "qwen/ABI/KernelOps.def"
}
#define QWEN_KERNEL_OP(Op, ...)                                                \
  template decltype(numerics::reference<KernelOp::Op>)                         \
      numerics::reference<KernelOp::Op>;
#include "qwen/ABI/KernelOps.def"
