//===- Attention.cpp - Attention over one page of the cache ---------------===//

#include "qwen/Numerics/Kernels.h"

#include "Lanes.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Math.h"

#include <cmath>

using namespace qwen;

static float widen(float value) { return value; }
static float widen(uint16_t value) { return f16ToF32(value); }

template <typename T>
static void attentionScores(const float *q, const void *kPage, float scale,
                            float *s, int64_t groups, int64_t headDim,
                            int64_t n) {
  const T *keys = static_cast<const T *>(kPage);
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t j = 0; j < n; ++j) {
      float acc = 0.0f;
      for (int64_t i = 0; i < headDim; ++i)
        acc =
            std::fma(q[g * headDim + i], widen(keys[i * kPageTokens + j]), acc);
      s[g * kPageTokens + j] = acc * scale;
    }
}

void numerics::attentionScoresF32(const float *q, const void *kPage,
                                  float scale, float *s, int64_t groups,
                                  int64_t headDim, int64_t n, const void *) {
  attentionScores<float>(q, kPage, scale, s, groups, headDim, n);
}

void numerics::attentionScoresF16(const float *q, const void *kPage,
                                  float scale, float *s, int64_t groups,
                                  int64_t headDim, int64_t n, const void *) {
  attentionScores<uint16_t>(q, kPage, scale, s, groups, headDim, n);
}

template <typename T>
static void attentionValues(const float *p, const void *vPage, float *o,
                            int64_t groups, int64_t headDim, int64_t n) {
  const T *values = static_cast<const T *>(vPage);
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < headDim; ++i) {
      float acc = 0.0f;
      for (int64_t j = 0; j < n; ++j)
        acc = std::fma(p[g * kPageTokens + j], widen(values[j * headDim + i]),
                       acc);
      o[g * headDim + i] = acc;
    }
}

void numerics::attentionValuesF32(const float *p, const void *vPage, float *o,
                                  int64_t groups, int64_t headDim, int64_t n,
                                  const void *) {
  attentionValues<float>(p, vPage, o, groups, headDim, n);
}

void numerics::attentionValuesF16(const float *p, const void *vPage, float *o,
                                  int64_t groups, int64_t headDim, int64_t n,
                                  const void *) {
  attentionValues<uint16_t>(p, vPage, o, groups, headDim, n);
}

/// The larger of two scores, of which a zero counts as +0: processors differ in
/// which of +0 and -0 they take for the larger.
static float largerScore(float a, float b) { return (b > a ? b : a) + 0.0f; }

void numerics::softmaxPage(const float *s, int64_t rows, int64_t n, float *p,
                           float *m, float *l) {
  for (int64_t r = 0; r < rows; ++r, s += kPageTokens, p += kPageTokens) {
    float largest = s[0] + 0.0f;
    for (int64_t j = 1; j < n; ++j)
      largest = largerScore(largest, s[j]);
    Lanes lanes;
    for (int64_t j = 0; j < kPageTokens; ++j) {
      p[j] = j < n ? numerics::exp(s[j] - largest) : 0.0f;
      lanes.add(j, p[j]);
    }
    m[r] = largest;
    l[r] = lanes.sum();
  }
}

void numerics::mergePage(const float *old, const float *page, int64_t rows,
                         int64_t headDim, float *merged) {
  const int64_t l = alignTo(rows, kStateQueries), o = 2 * l;
  for (int64_t r = 0; r < rows; ++r) {
    const float largest = largerScore(old[r], page[r]);
    const float a = numerics::exp(old[r] - largest);
    const float b = numerics::exp(page[r] - largest);
    merged[r] = largest;
    merged[l + r] = old[l + r] * a + page[l + r] * b;
    for (int64_t i = o + r * headDim; i < o + (r + 1) * headDim; ++i)
      merged[i] = old[i] * a + page[i] * b;
  }
}

void numerics::finishAttention(const float *o, float l, int64_t headDim,
                               float *y) {
  for (int64_t i = 0; i < headDim; ++i)
    y[i] = o[i] / l;
}
