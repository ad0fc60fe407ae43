//===- IntegerCache.cpp - Attention over keys and values in integers ------===//

#include "IntegerCache.h"

#include "Hadamard.h"
#include "qwen/Numerics/Kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

using namespace qwen;
using namespace qwen::numerics;

static constexpr const KvLayout &kLayout = layoutOf(KvFormat::Q8);
/// The largest code of a weight.
static constexpr float kMostWeight = 254;

namespace {
/// Values of a head in integers.
struct Codes {
  std::vector<int8_t> codes;
  float scale;
  /// 1 where a value is not finite; the others are unspecified then.
  int32_t flag;
};
} // namespace

/// Quantizes a head as activations are, in one block.
static Codes quantize(const std::vector<float> &x) {
  float amax = 0;
  for (float value : x) {
    if (!std::isfinite(value))
      return {.codes = {}, .scale = 0, .flag = 1};
    amax = std::max(amax, std::fabs(value));
  }
  Codes result = {std::vector<int8_t>(x.size()), 0, 0};
  if (amax < kLeastScale)
    return result;
  result.scale = amax / 127.0f;
  const float factor = 127.0f / amax;
  for (size_t i = 0; i < x.size(); ++i)
    result.codes[i] = static_cast<int8_t>(
        std::clamp(std::nearbyint(x[i] * factor), -127.0f, 127.0f));
  return result;
}

static Codes quantizeTransformed(const float *x, int64_t headDim) {
  std::vector<float> y(x, x + headDim);
  const int64_t block = headBlock(headDim);
  for (int64_t i = 0; i < headDim; i += block)
    transformHadamard(&y[static_cast<size_t>(i)], block);
  return quantize(y);
}

template <typename Number> static Number read(const void *from, int64_t at) {
  Number number;
  std::memcpy(&number, static_cast<const uint8_t *>(from) + at, sizeof number);
  return number;
}
template <typename Number>
static void write(void *to, int64_t at, Number number) {
  std::memcpy(static_cast<uint8_t *>(to) + at, &number, sizeof number);
}

/// The place of the scale of a slot.
static int64_t scaleAt(int64_t headDim, int64_t slot) {
  return kLayout.scalesOffset(headDim) + slot * kLayout.scaleBytes;
}

int32_t integers::encodeQuery(const float *x, int64_t headDim, void *query) {
  const Codes of = quantizeTransformed(x, headDim);
  if (of.flag != 0)
    return 1;
  int32_t sum = 0;
  for (int64_t i = 0; i < headDim; ++i) {
    const int8_t code = of.codes[static_cast<size_t>(i)];
    write(query, i, code);
    sum += code;
  }
  write(query, KvQuery::scaleOffset(headDim),
        of.scale / static_cast<float>(headBlock(headDim)));
  write(query, KvQuery::sumOffset(headDim), sum);
  return 0;
}

int32_t integers::appendK(const float *x, int64_t headDim, int64_t slot,
                          void *kPage) {
  const Codes of = quantizeTransformed(x, headDim);
  if (of.flag != 0)
    return 1;
  for (int64_t i = 0; i < headDim; ++i)
    write(kPage, keyCode(slot, i), of.codes[static_cast<size_t>(i)]);
  write(kPage, scaleAt(headDim, slot), of.scale);
  return 0;
}

int32_t integers::appendV(const float *x, int64_t headDim, int64_t slot,
                          void *vPage) {
  const Codes of = quantize({x, x + headDim});
  if (of.flag != 0)
    return 1;
  for (int64_t i = 0; i < headDim; ++i)
    write(vPage, valueCode(slot, i, headDim), of.codes[static_cast<size_t>(i)]);
  write(vPage, scaleAt(headDim, slot), of.scale);
  return 0;
}

void integers::attentionScores(const void *q, const void *kPage, float scale,
                               float *s, int64_t queries, int64_t headDim,
                               int64_t n, const void *) {
  for (int64_t g = 0; g < queries; ++g) {
    const auto *query =
        static_cast<const uint8_t *>(q) + g * KvQuery::bytes(headDim);
    const float factor =
        read<float>(query, KvQuery::scaleOffset(headDim)) * scale;
    for (int64_t j = 0; j < n; ++j) {
      int32_t dot = 0;
      for (int64_t i = 0; i < headDim; ++i)
        dot += read<int8_t>(query, i) * read<int8_t>(kPage, keyCode(j, i));
      const float ofKey =
          static_cast<float>(dot) * read<float>(kPage, scaleAt(headDim, j));
      s[g * kPageTokens + j] = ofKey * factor;
    }
  }
}

void integers::attentionValues(const float *p, const void *vPage, float *o,
                               int64_t queries, int64_t headDim, int64_t n,
                               const void *) {
  for (int64_t g = 0; g < queries; ++g) {
    float w[kPageTokens], largest = kLeastScale;
    for (int64_t j = 0; j < n; ++j) {
      w[j] = p[g * kPageTokens + j] * read<float>(vPage, scaleAt(headDim, j));
      largest = std::max(largest, w[j]);
    }
    const float factor = kMostWeight / largest;
    for (int64_t i = 0; i < headDim; ++i) {
      int32_t dot = 0;
      for (int64_t j = 0; j < n; ++j)
        dot += static_cast<int32_t>(std::nearbyint(w[j] * factor)) *
               read<int8_t>(vPage, valueCode(j, i, headDim));
      o[g * headDim + i] = static_cast<float>(dot) * (largest / kMostWeight);
    }
  }
}
