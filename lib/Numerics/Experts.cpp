//===- Experts.cpp - References of the choice of experts ------------------===//

#include "qwen/Numerics/Kernels.h"

#include "Lanes.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>
#include <numeric>
#include <vector>

using namespace qwen;

int32_t numerics::chooseExperts(const float *logits, int64_t n, int64_t chosen,
                                int32_t *ids, float *p) {
  if (checkFinite(logits, n)) {
    std::iota(ids, ids + chosen, 0);
    return 1;
  }
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  std::copy_n(order.begin(), chosen, ids);
  std::sort(ids, ids + chosen);

  const float greatest = *std::max_element(logits, logits + n);
  Lanes lanes;
  for (int64_t i = 0; i < n; ++i)
    lanes.add(i, numerics::exp(logits[i] - greatest));
  const float sum = lanes.sum();
  for (int64_t i = 0; i < chosen; ++i)
    p[i] = numerics::exp(logits[ids[i]] - greatest) / sum;
  return 0;
}

void numerics::addScaled(const float *x, float w, int64_t n, float *y) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = y[i] + w * x[i];
}
