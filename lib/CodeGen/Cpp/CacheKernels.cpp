//===- CacheKernels.cpp - Kernels of the KV cache, part of CppKernels.cpp -===//

// A head is a multiple of 8 values.
using EightIntegers = int32_t __attribute__((ext_vector_type(8)));

/// The bits of the largest magnitude of n values.
QWEN_INLINE static int32_t largestBits(const float *x, int64_t n) {
  EightIntegers largest = 0;
  for (int64_t i = 0; i < n; i += 8)
    largest = __builtin_elementwise_max(
        largest,
        __builtin_bit_cast(EightIntegers, loadValues<8>(x + i)) & INT32_MAX);
  return __builtin_reduce_max(largest);
}

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

/// Writes a head to every Stride-th number from `to` on. Below `limit`, a value
/// rounds to a finite number.
template <int64_t Stride, typename Number>
QWEN_INLINE static int32_t append(const float *x, int64_t headDim, float limit,
                                  Number *to) {
  using Numbers = Number __attribute__((ext_vector_type(8)));
  for (int64_t i = 0; i < headDim; i += 8) {
    const Numbers numbers =
        __builtin_convertvector(loadValues<8>(x + i), Numbers);
    if constexpr (Stride == 1)
      __builtin_memcpy(to + i, &numbers, sizeof numbers);
    else
      for (int64_t j = 0; j < 8; ++j)
        to[(i + j) * Stride] = numbers[j];
  }
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
using Codes = int8_t __attribute__((ext_vector_type(8)));

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
  /// The codes of 8 values. A sum has the integer in its lowest bits, rounded
  /// to nearest, ties to even.
  QWEN_INLINE Codes codes(const float *x) const {
    return __builtin_convertvector(
        __builtin_bit_cast(EightIntegers,
                           loadValues<8>(x) * factor + 0x1.8p23f),
        Codes);
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
  EightIntegers sums = 0;
  for (int64_t i = 0; i < headDim; i += 8) {
    const Codes eight = scale.codes(y + i);
    __builtin_memcpy(codes + i, &eight, sizeof eight);
    sums += __builtin_convertvector(eight, EightIntegers);
  }
  const int32_t sum = __builtin_reduce_add(sums);
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
  for (int64_t i = 0; i < headDim; i += 8) {
    const Codes eight = scale.codes(y + i);
    __builtin_memcpy(codes + keyCode(slot, i), &eight, kCodeChunk);
    __builtin_memcpy(codes + keyCode(slot, i + kCodeChunk),
                     reinterpret_cast<const int8_t *>(&eight) + kCodeChunk,
                     kCodeChunk);
  }
  scale.write(headDim, slot, codes);
  return scale.flag;
}

extern "C" int32_t qwenCppAppendVQ8(const float *x, int64_t headDim,
                                    int64_t slot, void *vPage) {
  const HeadScale scale(x, headDim);
  auto *codes = static_cast<int8_t *>(vPage);
  for (int64_t i = 0; i < headDim; i += 8) {
    const Codes eight = scale.codes(x + i);
    for (int64_t j = 0; j < 8; ++j)
      codes[valueCode(slot, i + j, headDim)] = eight[j];
  }
  scale.write(headDim, slot, codes);
  return scale.flag;
}
