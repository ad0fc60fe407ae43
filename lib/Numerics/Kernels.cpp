//===- Kernels.cpp - References that read a format, and all by kind -------===//

#include "qwen/Numerics/Kernels.h"

#include "IntegerCache.h"
#include "PackedWeights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

using namespace qwen;
using namespace qwen::numerics;

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// The format of weights that a reference reads.
template <KernelFormat Format>
static constexpr auto kWeights =
    static_cast<WeightFormat>(static_cast<int>(Format) - kFirstWeightFormat);

/// For each output, unpacks its weights, outputOf(panel, output of the panel),
/// and stores product(weights, token), to which it adds the bias and then the
/// residual, one addition each.
template <WeightFormat Format, typename OutputOf, typename Product>
static void storeOutputs(const uint8_t *weights, const float *bias,
                         const float *residual, float *out, int64_t m,
                         int64_t k, int64_t ld, int64_t panelBegin,
                         int64_t panelEnd, OutputOf outputOf, Product product) {
  for (int64_t n = panelBegin * kPanelOutputs; n < panelEnd * kPanelOutputs;
       ++n) {
    const auto output = outputOf(
        weights + n / kPanelOutputs * panelBytes(Format, k), n % kPanelOutputs);
    for (int64_t i = 0; i < m; ++i) {
      float acc = product(output, i);
      if (bias != nullptr)
        acc = acc + bias[n];
      if (residual != nullptr)
        acc = acc + residual[i * ld + n];
      out[i * ld + n] = acc;
    }
  }
}

template <KernelFormat Format>
static void linearF32(const float *x, const uint8_t *weights, const float *bias,
                      const float *residual, float *out, int64_t m, int64_t k,
                      int64_t ld, int64_t panelBegin, int64_t panelEnd) {
  storeOutputs<kWeights<Format>>(
      weights, bias, residual, out, m, k, ld, panelBegin, panelEnd,
      [&](const uint8_t *panel, int64_t output) {
        std::vector<float> values;
        values.reserve(static_cast<size_t>(k));
        for (int64_t j = 0; j < k; ++j)
          values.push_back(weightValue<kWeights<Format>>(panel, output, j));
        return values;
      },
      [&](const std::vector<float> &values, int64_t i) {
        float acc = 0.0f;
        for (int64_t j = 0; j < k; ++j)
          acc = std::fma(values[static_cast<size_t>(j)], x[i * k + j], acc);
        return acc;
      });
}

namespace {
/// The weights of one output: integers of values, and for each block or
/// sub-block what dots and sums are multiplied with.
template <WeightFormat Format> class QuantizedOutput {
public:
  QuantizedOutput(const uint8_t *panel, int64_t output, int64_t k) {
    for (int64_t i = 0; i < k; ++i)
      integers.push_back(
          static_cast<int8_t>(weightInteger<Format>(panel, output, i)));
    for (int64_t number = 0; number < kScales.numbers; ++number) {
      for (int64_t i = 0; i < k; i += weightBlock(Format))
        numbers[number].push_back(
            weightNumber<Format>(panel, output, i, number));
      for (int64_t i = 0; i < k; i += kSize)
        factors[number].push_back(
            weightSubInteger<Format>(panel, output, i, number));
    }
  }

  /// Adds the products of activations [begin, end), of one block of weights and
  /// of activations, to t.
  float addBlock(const int8_t *q, int64_t begin, int64_t end, float t) const {
    int32_t isum = 0, weightedSum = 0;
    for (int64_t i = begin; i < end; i += kSize) {
      int32_t dot = 0, sum = 0;
      for (int64_t j = i; j < std::min(end, i + kSize); ++j) {
        dot += q[j] * integers[static_cast<size_t>(j)];
        sum += q[j];
      }
      const auto sub = static_cast<size_t>(i / kSize);
      isum += factors[0][sub] * dot;
      if constexpr (kScales.numbers == 2)
        weightedSum += factors[1][sub] * sum;
    }
    const auto block = static_cast<size_t>(begin / weightBlock(Format));
    auto u = static_cast<float>(isum);
    if constexpr (kScales.hasZero)
      u = std::fma(-numbers[1][block], static_cast<float>(weightedSum), u);
    t = std::fma(u, numbers[0][block], t);
    if constexpr (kScales.hasMinimum())
      t = std::fma(static_cast<float>(weightedSum), numbers[1][block], t);
    return t;
  }

private:
  static constexpr ScaleInfo kScales = scalesOf(Format);
  /// Values of a sub-block, or of a block without them.
  static constexpr int64_t kSize =
      kScales.hasSubBlocks() ? kScales.subBlock : weightBlock(Format);

  std::vector<int8_t> integers;
  std::vector<float> numbers[2];
  std::vector<int32_t> factors[2];
};
} // namespace

template <KernelFormat Format>
static void linearQ8(const int8_t *q, const float *d, const int32_t *,
                     const uint8_t *weights, const float *bias,
                     const float *residual, float *out, int64_t m, int64_t k,
                     int64_t ld, int64_t panelBegin, int64_t panelEnd) {
  using Output = QuantizedOutput<kWeights<Format>>;
  constexpr int64_t size =
      std::min(weightBlock(kWeights<Format>), kActivationBlock);
  const int64_t blocks = ceilDiv(k, kActivationBlock);
  storeOutputs<kWeights<Format>>(
      weights, bias, residual, out, m, k, ld, panelBegin, panelEnd,
      [&](const uint8_t *panel, int64_t output) {
        return Output(panel, output, k);
      },
      [&](const Output &output, int64_t i) {
        float acc = 0.0f;
        for (int64_t begin = 0; begin < k; begin += kActivationBlock) {
          const int64_t end = std::min(k, begin + kActivationBlock);
          // With -0, the first fma is the rounded product.
          float t = -0.0f;
          for (int64_t j = begin; j < end; j += size)
            t = output.addBlock(q + i * k, j, std::min(end, j + size), t);
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
static void attentionScores(const void *query, const void *kPage, float scale,
                            float *s, int64_t queries, int64_t headDim,
                            int64_t n, const void *) {
  const auto *q = static_cast<const float *>(query);
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

/// Writes values to every Stride-th number from `out` on.
template <KernelFormat Format, int64_t Stride>
static int32_t append(const float *x, int64_t headDim, Stored<Format> *out) {
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
static int32_t appendK(const float *x, int64_t headDim, int64_t slot,
                       void *kPage) {
  return append<Format, kPageTokens>(
      x, headDim, static_cast<Stored<Format> *>(kPage) + slot);
}

template <KernelFormat Format>
static int32_t appendV(const float *x, int64_t headDim, int64_t slot,
                       void *vPage) {
  return append<Format, 1>(
      x, headDim, static_cast<Stored<Format> *>(vPage) + slot * headDim);
}

// Integers have references of their own.
template <KernelFormat Format>
static int32_t encodeQuery(const float *x, int64_t headDim, void *query) {
  return integers::encodeQuery(x, headDim, query);
}
template <>
int32_t appendK<KernelFormat::Q8>(const float *x, int64_t headDim, int64_t slot,
                                  void *kPage) {
  return integers::appendK(x, headDim, slot, kPage);
}
template <>
int32_t appendV<KernelFormat::Q8>(const float *x, int64_t headDim, int64_t slot,
                                  void *vPage) {
  return integers::appendV(x, headDim, slot, vPage);
}
template <>
void attentionScores<KernelFormat::Q8>(const void *q, const void *kPage,
                                       float scale, float *s, int64_t queries,
                                       int64_t headDim, int64_t n,
                                       const void *next) {
  integers::attentionScores(q, kPage, scale, s, queries, headDim, n, next);
}
template <>
void attentionValues<KernelFormat::Q8>(const float *p, const void *vPage,
                                       float *o, int64_t queries,
                                       int64_t headDim, int64_t n,
                                       const void *next) {
  integers::attentionValues(p, vPage, o, queries, headDim, n, next);
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
#define QWEN_CACHE_FORMAT(Id, ...)                                             \
  offer.template operator()<KernelFormat::Id>();
#include "qwen/ABI/KvFormats.def"
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
