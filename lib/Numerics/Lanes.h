//===- Lanes.h - The order of float sums ------------------------*- C++ -*-===//
//
// Sums outside of products run in 16 lanes and then a tree, so that every
// vector width of 16 and less can follow the same order.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_NUMERICS_LANES_H
#define QWEN_LIB_NUMERICS_LANES_H

#include <cstdint>

namespace qwen::numerics {

/// A sum in 16 lanes, each from +0.
class Lanes {
public:
  /// Adds the term of index `i`, which belongs to lane i mod 16.
  void add(int64_t i, float term) { lanes[i % 16] = lanes[i % 16] + term; }

  /// Adds lanes j and j + 8, then j and j + 4, then 2, then 1.
  float sum() {
    for (int width = 8; width >= 1; width /= 2)
      for (int j = 0; j < width; ++j)
        lanes[j] = lanes[j] + lanes[j + width];
    return lanes[0];
  }

private:
  float lanes[16] = {};
};

} // namespace qwen::numerics

#endif // QWEN_LIB_NUMERICS_LANES_H
