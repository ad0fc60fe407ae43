//===- IntegerKv.h - Keys and values in integers ----------------*- C++ -*-===//
//
// Formats of the cache that no table has, and their kernels in plain C++: codes
// of a layout, with a scale for the key or the value of a head.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_INTEGERKV_H
#define QWEN_TEST_UNIT_INTEGERKV_H

#include "ReferenceModel.h"

#include "qwen/Numerics/Float16.h"

#include <cmath>
#include <cstring>

namespace qwen::test {

/// Kernels of a layout. A code is the nearest integer to x / scale; the scale,
/// an f16 or an f32, takes the largest magnitude to the largest code. The codes
/// of a position lie side by side, keys like values.
template <KvLayout Layout> class IntegerKv {
public:
  static KvKernels kernels() {
    return {Layout, append, append, scores, values};
  }

  static int32_t append(const float *x, int64_t headDim, int64_t slot,
                        void *page) {
    float largest = 0;
    for (int64_t i = 0; i < headDim; ++i) {
      if (!std::isfinite(x[i]))
        return 1;
      largest = std::max(largest, std::fabs(x[i]));
    }
    const float scale = storeScale(page, headDim, slot, largest / kMost);
    for (int64_t i = 0; i < headDim; ++i) {
      const float code = scale == 0 ? 0 : std::nearbyint(x[i] / scale);
      storeCode(page, slot * headDim + i,
                static_cast<int64_t>(std::clamp(code, -kMost, kMost)));
    }
    return 0;
  }

  static void scores(const void *query, const void *kPage, float scale,
                     float *s, int64_t queries, int64_t headDim, int64_t n,
                     const void *) {
    const auto *q = static_cast<const float *>(query);
    for (int64_t g = 0; g < queries; ++g)
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t i = 0; i < headDim; ++i)
          sum = std::fma(q[g * headDim + i], value(kPage, headDim, j, i), sum);
        s[g * kPageTokens + j] = sum * scale;
      }
  }

  static void values(const float *p, const void *vPage, float *o,
                     int64_t queries, int64_t headDim, int64_t n,
                     const void *) {
    for (int64_t g = 0; g < queries; ++g)
      for (int64_t i = 0; i < headDim; ++i) {
        float sum = 0;
        for (int64_t j = 0; j < n; ++j)
          sum = std::fma(p[g * kPageTokens + j], value(vPage, headDim, j, i),
                         sum);
        o[g * headDim + i] = sum;
      }
  }

  /// The value of a page that a code and its scale stand for.
  static float value(const void *page, int64_t headDim, int64_t slot,
                     int64_t i) {
    const uint8_t *scale = static_cast<const uint8_t *>(page) +
                           Layout.scalesOffset(headDim) +
                           slot * Layout.scaleBytes;
    return static_cast<float>(loadCode(page, slot * headDim + i)) *
           loadScale(scale);
  }

private:
  static_assert(Layout.codeBits == 4 || Layout.codeBits == 8);
  static_assert(Layout.scaleBytes == 2 || Layout.scaleBytes == 4);
  static constexpr int64_t kHalf = int64_t{1} << (Layout.codeBits - 1);
  static constexpr auto kMost = static_cast<float>(kHalf - 1);

  static float loadScale(const uint8_t *from) {
    if constexpr (Layout.scaleBytes == 2) {
      uint16_t half;
      std::memcpy(&half, from, sizeof(half));
      return f16ToF32(half);
    }
    float scale;
    std::memcpy(&scale, from, sizeof(scale));
    return scale;
  }

  /// Stores a scale and returns the number that was stored.
  static float storeScale(void *page, int64_t headDim, int64_t slot,
                          float scale) {
    uint8_t *to = static_cast<uint8_t *>(page) + Layout.scalesOffset(headDim) +
                  slot * Layout.scaleBytes;
    const uint16_t half = f32ToF16(scale);
    if constexpr (Layout.scaleBytes == 2)
      std::memcpy(to, &half, sizeof(half));
    else
      std::memcpy(to, &scale, sizeof(scale));
    return loadScale(to);
  }

  static int64_t loadCode(const void *page, int64_t at) {
    const int64_t bit = at * Layout.codeBits;
    const uint8_t byte = static_cast<const uint8_t *>(page)[bit / 8];
    const int64_t code = byte >> bit % 8 & (2 * kHalf - 1);
    if (Layout.hasOffset)
      return code - kHalf;
    return code < kHalf ? code : code - 2 * kHalf;
  }

  static void storeCode(void *page, int64_t at, int64_t code) {
    const int64_t bit = at * Layout.codeBits, mask = 2 * kHalf - 1;
    uint8_t &byte = static_cast<uint8_t *>(page)[bit / 8];
    const int64_t bits = (Layout.hasOffset ? code + kHalf : code) & mask;
    byte = static_cast<uint8_t>((byte & ~(mask << bit % 8)) | bits << bit % 8);
  }
};

/// 8 bits with a scale in f32.
inline constexpr KvLayout kSigned8 = {8, 4, false};
/// 4 bits with an offset of 8 and a scale in f16.
inline constexpr KvLayout kUnsigned4 = {4, 2, true};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_INTEGERKV_H
