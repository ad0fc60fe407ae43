//===- PageSoftmax.cpp - The softmax of attention, page by page -----------===//

#include "qwen/Numerics/Kernels.h"

#include "Lanes.h"
#include "qwen/Numerics/Math.h"

using namespace qwen;

/// The larger of two scores. A zero counts as +0, because processors differ in
/// whether +0 or -0 is the larger.
static float largerScore(float a, float b) { return (b > a ? b : a) + 0.0f; }

void numerics::softmaxPage(const float *s, int64_t queries, int64_t n, float *p,
                           float *m, float *l) {
  for (int64_t r = 0; r < queries; ++r, s += kPageTokens, p += kPageTokens) {
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

void numerics::mergePage(const float *old, const float *page, int64_t queries,
                         int64_t headDim, float *merged) {
  const int64_t l = alignTo(queries, kStateQueries), o = 2 * l;
  for (int64_t r = 0; r < queries; ++r) {
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
