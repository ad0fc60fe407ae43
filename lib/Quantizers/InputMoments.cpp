//===- InputMoments.cpp - Second moments of a product's inputs ------------===//

#include "qwen/Quantizers/InputMoments.h"

#include "qwen/Quantizers/PanelProducts.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace qwen;

InputMoments::InputMoments(int64_t k, Place place)
    : size(k), pages(bytesFor(k), place, "second moments of inputs") {}

void InputMoments::add(const float *rows, int64_t added, int64_t stride,
                       unsigned threads, const float *weights) {
  // Rows at a time, which bounds memory.
  constexpr int64_t kMost = 2048;
  const int64_t panels = size / kPanel;
  std::vector<float> packed(static_cast<size_t>(std::min(added, kMost) * size));
  for (int64_t first = 0; first < added; first += kMost) {
    const int64_t depth = std::min(kMost, added - first);
    parallelFor(static_cast<size_t>(panels), threads, [&](size_t i, unsigned) {
      const auto panel = static_cast<int64_t>(i);
      float *to = packed.data() + panel * depth * kPanel;
      const float *from = rows + first * stride + panel * kPanel;
      for (int64_t row = 0; row < depth; ++row) {
        const float scale = weights ? std::sqrt(weights[first + row]) : 1.0f;
        for (int64_t j = 0; j < kPanel; ++j)
          to[row * kPanel + j] = scale * from[row * stride + j];
      }
    });
    addLowerTriangle(packed.data(), packed.data(), panels, depth,
                     pages.as<float>(), size, threads);
  }
  count += added;
}
