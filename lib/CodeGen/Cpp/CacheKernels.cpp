//===- CacheKernels.cpp - Kernels of the KV cache, part of CppKernels.cpp -===//

/// The bits of the largest magnitude of n values, a multiple of 8.
QWEN_INLINE static int32_t largestBits(const float *x, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, __builtin_bit_cast(int32_t, x[i]) & INT32_MAX);
  return largest;
}

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

/// Writes a head to every Stride-th number from `to` on. Below `limit`, a value
/// rounds to a finite number.
template <int64_t Stride, typename Number>
QWEN_INLINE static int32_t append(const float *x, int64_t headDim, float limit,
                                  Number *to) {
  for (int64_t i = 0; i < headDim; ++i)
    to[i * Stride] = static_cast<Number>(x[i]);
  return largestBits(x, headDim) >= __builtin_bit_cast(int32_t, limit);
}

#define QWEN_APPEND(Id, Number, Limit)                                         \
  extern "C" int32_t qwenCppAppendK##Id(const float *x, int64_t headDim,       \
                                        int64_t slot, void *kPage) {           \
    return append<kPageTokens>(x, headDim, Limit,                              \
                               static_cast<Number *>(kPage) + slot);           \
  }                                                                            \
  extern "C" int32_t qwenCppAppendV##Id(const float *x, int64_t headDim,       \
                                        int64_t slot, void *vPage) {           \
    return append<1>(x, headDim, Limit,                                        \
                     static_cast<Number *>(vPage) + slot * headDim);           \
  }
QWEN_APPEND(F32, float, __builtin_inff())
QWEN_APPEND(F16, _Float16, 65520.0f)
#undef QWEN_APPEND

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

/// The Hadamard transform of a head in its blocks.
QWEN_INLINE static void transformHead(const float *x, int64_t headDim,
                                      float *y) {
  const int64_t block = headBlock(headDim);
  for (int64_t i = 0; i < headDim; ++i)
    y[i] = x[i];
  if (block >= kGroup) {
    for (int64_t i = 0; i < headDim; i += block)
      transformRow(y + i, block);
    return;
  }
  for (int64_t half = 1; half < block; half *= 2)
    for (int64_t begin = 0; begin < headDim; begin += 2 * half)
      for (int64_t i = begin; i < begin + half; ++i) {
        const float a = y[i], b = y[i + half];
        y[i] = a + b;
        y[i + half] = a - b;
      }
}

namespace {
/// The scale of a head in codes.
struct HeadScale {
  float scale, factor;
  /// 1 where a value is not finite.
  int32_t flag;

  QWEN_INLINE HeadScale(const float *x, int64_t headDim) {
    const int32_t bits = largestBits(x, headDim);
    const auto amax = __builtin_bit_cast(float, bits);
    const bool isZero = amax < kLeastScale;
    scale = isZero ? 0.0f : amax / 127.0f;
    factor = isZero ? 0.0f : 127.0f / amax;
    flag = amax < __builtin_inff() ? 0 : 1;
  }
  QWEN_INLINE int8_t code(float x) const {
    // The sum has the integer in its lowest bits, rounded to nearest even.
    return static_cast<int8_t>(
        __builtin_bit_cast(int32_t, x *factor + 0x1.8p23f));
  }
  /// Writes the scale of a slot behind the codes of a page.
  QWEN_INLINE void write(int64_t headDim, int64_t slot, int8_t *page) const {
    __builtin_memcpy(page + kPageTokens * headDim + slot * 4, &scale, 4);
  }
};
} // namespace

extern "C" int32_t qwenCppEncodeQueryQ8(const float *x, int64_t headDim,
                                        void *query) {
  float y[kStackValues];
  transformHead(x, headDim, y);
  const HeadScale scale(y, headDim);
  auto *codes = static_cast<int8_t *>(query);
  int32_t sum = 0;
  for (int64_t i = 0; i < headDim; ++i) {
    codes[i] = scale.code(y[i]);
    sum += codes[i];
  }
  const float ofQuery = scale.scale / static_cast<float>(headBlock(headDim));
  __builtin_memcpy(codes + KvQuery::scaleOffset(headDim), &ofQuery, 4);
  __builtin_memcpy(codes + KvQuery::sumOffset(headDim), &sum, 4);
  return scale.flag;
}

extern "C" int32_t qwenCppAppendKQ8(const float *x, int64_t headDim,
                                    int64_t slot, void *kPage) {
  float y[kStackValues];
  transformHead(x, headDim, y);
  const HeadScale scale(y, headDim);
  auto *codes = static_cast<int8_t *>(kPage);
  for (int64_t i = 0; i < headDim; i += kCodeChunk)
    for (int64_t j = 0; j < kCodeChunk; ++j)
      codes[keyCode(slot, i) + j] = scale.code(y[i + j]);
  scale.write(headDim, slot, codes);
  return scale.flag;
}

extern "C" int32_t qwenCppAppendVQ8(const float *x, int64_t headDim,
                                    int64_t slot, void *vPage) {
  const HeadScale scale(x, headDim);
  auto *codes = static_cast<int8_t *>(vPage);
  for (int64_t i = 0; i < headDim; ++i)
    codes[valueCode(slot, i, headDim)] = scale.code(x[i]);
  scale.write(headDim, slot, codes);
  return scale.flag;
}
