//===- TokenKernels.cpp - Everything around the products ------------------===//

#include "qwen/Numerics/Kernels.h"

#include "Hadamard.h"
#include "Lanes.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/Rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

using namespace qwen;

/// An exponent of all ones: NaN or infinity.
static bool isFinite(float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7f800000) != 0x7f800000;
}

int32_t numerics::checkFinite(const float *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!isFinite(x[i]))
      return 1;
  return 0;
}

void numerics::ropeTable(int32_t position, const float *invFreq, int64_t half,
                         float *cos, float *sin) {
  for (int64_t i = 0; i < half; ++i) {
    const SinCos value = sinCos(static_cast<float>(position) * invFreq[i]);
    cos[i] = value.cos;
    sin[i] = value.sin;
  }
}

/// 1 / sqrt(mean of squares + eps); 0 where the sum of squares overflows.
static float rootMeanSquare(const float *x, int64_t k, float eps) {
  numerics::Lanes lanes;
  for (int64_t i = 0; i < k; ++i)
    lanes.add(i, x[i] * x[i]);
  const float mean = lanes.sum() / static_cast<float>(k);
  return 1.0f / std::sqrt(mean + eps);
}

static void scaleValues(const float *x, const float *w, int64_t k, float r,
                        float *y) {
  for (int64_t i = 0; i < k; ++i)
    y[i] = (x[i] * r) * w[i];
}

void numerics::rmsNormF32(const float *x, const float *w, int64_t k, float eps,
                          float *y) {
  const float r = rootMeanSquare(x, k, eps);
  scaleValues(x, w, k, r > 0 ? r : std::numeric_limits<float>::quiet_NaN(), y);
}

/// Quantizes one activation block of n <= kActivationBlock values.
static int32_t quantizeBlock(const float *x, int64_t n, int8_t *q, float *d,
                             int32_t *sums) {
  if (numerics::checkFinite(x, n) != 0)
    return 1;
  float amax = 0.0f;
  for (int64_t i = 0; i < n; ++i)
    amax = std::max(amax, std::fabs(x[i]));
  const bool zero = amax < 0x1p-100f;
  *d = zero ? 0.0f : amax / 127.0f;
  const float scale = zero ? 0.0f : 127.0f / amax;
  std::fill(sums, sums + n / kGroup, 0);
  for (int64_t i = 0; i < n; ++i) {
    const float value = std::clamp(std::rint(x[i] * scale), -127.0f, 127.0f);
    q[i] = static_cast<int8_t>(value);
    sums[i / kGroup] += q[i];
  }
  return 0;
}

int32_t numerics::quantizeQ8(const float *x, int64_t k, int8_t *q, float *d,
                             int32_t *sums) {
  int32_t flag = 0;
  for (int64_t begin = 0; begin < k; begin += kActivationBlock)
    flag |= quantizeBlock(x + begin, std::min(kActivationBlock, k - begin),
                          q + begin, d + begin / kActivationBlock,
                          sums + begin / kGroup);
  return flag;
}

int32_t numerics::rmsNormQ8(const float *x, const float *w, int64_t k,
                            float eps, int8_t *q, float *d, int32_t *sums) {
  std::vector<float> y(static_cast<size_t>(k));
  rmsNormF32(x, w, k, eps, y.data());
  return quantizeQ8(y.data(), k, q, d, sums);
}

#define QWEN_ELEMENT_MAP(Map, Name)                                            \
  void numerics::Name##Values(const float *x, int64_t n, float *y) {           \
    std::transform(x, x + n, y, Name);                                         \
  }
#include "qwen/ABI/ElementMaps.def"

void numerics::swiGluF32(const float *gate, const float *up, int64_t n,
                         float *y) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = silu(gate[i]) * up[i];
}

int32_t numerics::swiGluQ8(const float *gate, const float *up, int64_t n,
                           int8_t *q, float *d, int32_t *sums) {
  float y[kStackValues];
  swiGluF32(gate, up, n, y);
  return quantizeQ8(y, n, q, d, sums);
}

void numerics::hadamard(const float *x, int64_t n, float *y) {
  std::copy_n(x, n, y);
  for (int64_t begin = 0, size; begin < n; begin += size) {
    size = hadamardBlock(n - begin);
    transformHadamard(y + begin, size);
  }
}

int32_t numerics::hadamardQ8(const float *x, int64_t n, int8_t *q, float *d,
                             int32_t *sums) {
  float y[kStackValues];
  hadamard(x, n, y);
  return quantizeQ8(y, n, q, d, sums);
}

void numerics::turn(const float *x, const float *factor, int64_t k, float *y) {
  const int64_t odd = oddPart(k), width = k / odd;
  for (int64_t row = 0; row < odd; ++row)
    for (int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (int64_t other = 0; other < odd; ++other)
        sum += x[other * width + i] * factor[row * other % odd];
      y[row * width + i] = sum;
    }
  for (int64_t begin = 0; begin < k; begin += width)
    transformHadamard(y + begin, width);
}

void numerics::rope(const float *x, const float *cos, const float *sin,
                    int64_t half, float *y) {
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = x[i];
    const float x2 = x[i + half];
    y[i] = x1 * cos[i] - x2 * sin[i];
    y[i + half] = x2 * cos[i] + x1 * sin[i];
  }
}

void numerics::normRope(const float *x, const float *w, const float *cos,
                        const float *sin, int64_t half, float eps, float *y) {
  std::vector<float> normed(static_cast<size_t>(2 * half));
  scaleValues(x, w, 2 * half, rootMeanSquare(x, 2 * half, eps), normed.data());
  rope(normed.data(), cos, sin, half, y);
}
