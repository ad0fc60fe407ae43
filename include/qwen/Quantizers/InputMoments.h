//===- InputMoments.h - Second moments of a product's inputs ----*- C++ -*-===//

#ifndef QWEN_QUANTIZERS_INPUTMOMENTS_H
#define QWEN_QUANTIZERS_INPUTMOMENTS_H

#include "qwen/Support/Pages.h"

#include <cstdint>

namespace qwen {

/// The sum of x x^T over the inputs x of a product, perhaps each with a weight:
/// all that the squared error of its outputs depends on. Each element is a sum
/// of chains of fma, one for each 256 tokens of a call, so that threads change
/// no bit.
class InputMoments {
public:
  /// For inputs of `k` values, a multiple of kGroup. Throws Error if there is
  /// no room for bytesFor(k).
  explicit InputMoments(int64_t k, Place place = Place::Memory);

  static uint64_t bytesFor(int64_t k) {
    return static_cast<uint64_t>(k * k) * sizeof(float);
  }

  /// Adds `count` inputs, rows that are `stride` values apart. Many at a time
  /// are faster: the sums are read and written once in a call. Needs 4 * k
  /// bytes for each of at most 2048 rows. Input i counts `weights`[i] times,
  /// which is not negative, or once without weights.
  void add(const float *rows, int64_t count, int64_t stride, unsigned threads,
           const float *weights = nullptr);

  int64_t k() const { return size; }
  /// The number of inputs that were added.
  int64_t tokens() const { return count; }
  /// The sum of x_i * x_j.
  float at(int64_t i, int64_t j) const {
    return i < j ? at(j, i) : sums()[i * size + j];
  }

private:
  const float *sums() const { return pages.as<float>(); }

  int64_t size, count = 0;
  /// [k][k]. Only the lower triangle is computed.
  Pages pages;
};

} // namespace qwen

#endif // QWEN_QUANTIZERS_INPUTMOMENTS_H
