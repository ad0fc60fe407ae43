//===- Stored.cpp - Numbers of stored tensors -----------------------------===//

#include "qwen/Numerics/Stored.h"

#include "qwen/Numerics/Float16.h"

#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::numerics;

template <typename T> static T loadAs(const uint8_t *from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

static float loadF16(const uint8_t *from) {
  return f16ToF32(loadAs<uint16_t>(from));
}

//===----------------------------------------------------------------------===//
// Blocks of 32 values
//===----------------------------------------------------------------------===//

/// The integers of IQ4_NL and IQ4_XS, by code.
static constexpr auto &kNonlinear4 =
    kCodingInfos[static_cast<size_t>(Coding::Nonlinear4)].codebook;
/// The integers of MXFP4, by code: twice the values of e2m1.
static constexpr int8_t kE2M1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                     0, -1, -2, -3, -4, -6, -8, -12};

/// Code `i` of 32 nibbles: those of the low nibbles come first.
static int nibble(const uint8_t *from, int64_t i) {
  return from[i % 16] >> (i / 16 * 4) & 15;
}

/// Code `i` of 32 with a fifth bit in the word `high`.
static int nibbleAndBit(const uint8_t *from, const uint8_t *high, int64_t i) {
  return nibble(from, i) | static_cast<int>(loadAs<uint32_t>(high) >> i & 1)
                               << 4;
}

/// The integer of value `i` of a block.
template <StoredType Type>
static int integerOf(const uint8_t *block, int64_t i) {
  if constexpr (Type == StoredType::Q4_0)
    return nibble(block + 2, i) - 8;
  else if constexpr (Type == StoredType::Q4_1)
    return nibble(block + 4, i);
  else if constexpr (Type == StoredType::Q5_0)
    return nibbleAndBit(block + 6, block + 2, i) - 16;
  else if constexpr (Type == StoredType::Q5_1)
    return nibbleAndBit(block + 8, block + 4, i);
  else if constexpr (Type == StoredType::Q8_0)
    return static_cast<int8_t>(block[2 + i]);
  else if constexpr (Type == StoredType::IQ4_NL)
    return kNonlinear4[nibble(block + 2, i)];
  else {
    static_assert(Type == StoredType::MXFP4);
    return kE2M1[nibble(block + 1, i)];
  }
}

/// The scale of such a block.
template <StoredType Type> static float scaleOf(const uint8_t *block) {
  if constexpr (Type == StoredType::MXFP4)
    return std::ldexp(1.0F, block[0] - 128);
  else
    return loadF16(block);
}

/// The minimum of such a block.
template <StoredType Type> static float minimumOf(const uint8_t *block) {
  return hasMinimum(Type) ? loadF16(block + 2) : 0.0F;
}

template <StoredType Type>
static bool readIntegersOf(const uint8_t *from, IntegerBlock &block) {
  const float scale = scaleOf<Type>(from), minimum = minimumOf<Type>(from);
  block.scale = f32ToF16(scale);
  block.minimum = f32ToF16(minimum);
  if (!std::isfinite(scale) || f16ToF32(block.scale) != scale ||
      !std::isfinite(minimum))
    return false;
  for (int64_t i = 0; i < 32; ++i)
    block.integers[i] = static_cast<int8_t>(integerOf<Type>(from, i));
  return true;
}

bool qwen::numerics::readIntegers(StoredType type, const uint8_t *from,
                                  IntegerBlock &block) {
  switch (type) {
  case StoredType::Q4_0:
    return readIntegersOf<StoredType::Q4_0>(from, block);
  case StoredType::Q4_1:
    return readIntegersOf<StoredType::Q4_1>(from, block);
  case StoredType::Q5_0:
    return readIntegersOf<StoredType::Q5_0>(from, block);
  case StoredType::Q5_1:
    return readIntegersOf<StoredType::Q5_1>(from, block);
  case StoredType::Q8_0:
    return readIntegersOf<StoredType::Q8_0>(from, block);
  case StoredType::IQ4_NL:
    return readIntegersOf<StoredType::IQ4_NL>(from, block);
  case StoredType::MXFP4:
    return readIntegersOf<StoredType::MXFP4>(from, block);
  default:
    return false;
  }
}

/// Dequantizes a block of integers.
template <StoredType Type>
static void dequantizeBlock(const uint8_t *from, float *to) {
  const float scale = scaleOf<Type>(from), minimum = minimumOf<Type>(from);
  for (int64_t i = 0; i < 32; ++i) {
    to[i] = static_cast<float>(integerOf<Type>(from, i)) * scale;
    // A sum with +0 would change the sign of a zero.
    if constexpr (hasMinimum(Type))
      to[i] += minimum;
  }
}

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

template <>
void dequantizeBlock<StoredType::F32>(const uint8_t *from, float *to) {
  *to = loadAs<float>(from);
}

template <>
void dequantizeBlock<StoredType::F16>(const uint8_t *from, float *to) {
  *to = loadF16(from);
}

template <>
void dequantizeBlock<StoredType::BF16>(const uint8_t *from, float *to) {
  *to = bf16ToF32(loadAs<uint16_t>(from));
}

//===----------------------------------------------------------------------===//
// Blocks of 256 values
//===----------------------------------------------------------------------===//

/// Dequantizes Q4_K and Q5_K: sub-blocks of 32 with pairs of a 6-bit scale and
/// a 6-bit minimum. `code(j, l)` is the code of value l of sub-block j.
template <typename CodeFn>
static void dequantizePairs(const uint8_t *from, float *to, CodeFn code) {
  const float d = loadF16(from), dMinimum = loadF16(from + 2);
  const uint8_t *s = from + 4;
  for (int64_t j = 0; j < 8; ++j) {
    const int scale =
        j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    const int minimum =
        j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
    const float step = d * static_cast<float>(scale);
    const float least = dMinimum * static_cast<float>(minimum);
    for (int64_t l = 0; l < 32; ++l)
      *to++ = step * static_cast<float>(code(j, l)) - least;
  }
}

/// The code of value l of sub-block j of Q4_K; two sub-blocks share bytes.
static int pairNibble(const uint8_t *codes, int64_t j, int64_t l) {
  return codes[j / 2 * 32 + l] >> (j % 2 * 4) & 15;
}

template <>
void dequantizeBlock<StoredType::Q4_K>(const uint8_t *from, float *to) {
  dequantizePairs(from, to, [from](int64_t j, int64_t l) {
    return pairNibble(from + 16, j, l);
  });
}

template <>
void dequantizeBlock<StoredType::Q5_K>(const uint8_t *from, float *to) {
  dequantizePairs(from, to, [from](int64_t j, int64_t l) {
    return pairNibble(from + 48, j, l) | (from[16 + l] >> j & 1) << 4;
  });
}

/// Calls value(i, half, run, l) for the values i of a block in order, which are
/// 2 halves of 4 runs of 32 values.
template <typename ValueFn>
static void forEachOfRuns(float *to, ValueFn value) {
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t run = 0; run < 4; ++run)
      for (int64_t l = 0; l < 32; ++l)
        *to++ = value(half * 8 + run * 2 + l / 16, half, run, l);
}

template <>
void dequantizeBlock<StoredType::Q6_K>(const uint8_t *from, float *to) {
  const uint8_t *low = from, *high = from + 128, *scales = from + 192;
  const float d = loadF16(from + 208);
  forEachOfRuns(to, [=](int64_t sub, int64_t half, int64_t run, int64_t l) {
    const int code =
        (low[64 * half + 32 * (run % 2) + l] >> (run / 2 * 4) & 15) |
        (high[32 * half + l] >> (run * 2) & 3) << 4;
    const float step = d * static_cast<float>(static_cast<int8_t>(scales[sub]));
    return step * static_cast<float>(code - 32);
  });
}

template <>
void dequantizeBlock<StoredType::Q3_K>(const uint8_t *from, float *to) {
  const uint8_t *high = from, *low = from + 32, *scales = from + 96;
  const float d = loadF16(from + 108);
  forEachOfRuns(to, [=](int64_t sub, int64_t half, int64_t run, int64_t l) {
    const int code = low[32 * half + l] >> (run * 2) & 3;
    const int offset = (high[l] >> (half * 4 + run) & 1) != 0 ? 0 : 4;
    const int scale = (scales[sub % 8] >> (sub / 8 * 4) & 15) |
                      (scales[8 + sub % 4] >> (sub / 4 * 2) & 3) << 4;
    const float step = d * static_cast<float>(scale - 32);
    return step * static_cast<float>(code - offset);
  });
}

template <>
void dequantizeBlock<StoredType::Q2_K>(const uint8_t *from, float *to) {
  const uint8_t *scales = from, *low = from + 16;
  const float d = loadF16(from + 80), dMinimum = loadF16(from + 82);
  forEachOfRuns(to, [=](int64_t sub, int64_t half, int64_t run, int64_t l) {
    const int code = low[32 * half + l] >> (run * 2) & 3;
    const float step = d * static_cast<float>(scales[sub] & 15);
    const float least = dMinimum * static_cast<float>(scales[sub] >> 4);
    return step * static_cast<float>(code) - least;
  });
}

template <>
void dequantizeBlock<StoredType::IQ4_XS>(const uint8_t *from, float *to) {
  const float d = loadF16(from);
  const auto high = loadAs<uint16_t>(from + 2);
  for (int64_t j = 0; j < 8; ++j) {
    const int scale =
        (from[4 + j / 2] >> (j % 2 * 4) & 15) | (high >> (j * 2) & 3) << 4;
    const float step = d * static_cast<float>(scale - 32);
    for (int64_t l = 0; l < 32; ++l)
      *to++ =
          step * static_cast<float>(kNonlinear4[nibble(from + 8 + j * 16, l)]);
  }
}

//===----------------------------------------------------------------------===//
// All types
//===----------------------------------------------------------------------===//

template <StoredType Type>
static void dequantizeAll(const uint8_t *from, int64_t count, float *to) {
  constexpr StoredTypeInfo info = infoOf(Type);
  for (int64_t i = 0; i < count; i += info.values, from += info.bytes)
    dequantizeBlock<Type>(from, to + i);
}

void qwen::numerics::dequantize(StoredType type, const uint8_t *from,
                                int64_t count, float *to) {
  switch (type) {
#define QWEN_STORED_TYPE(Id, ...)                                              \
  case StoredType::Id:                                                         \
    return dequantizeAll<StoredType::Id>(from, count, to);
#include "qwen/ABI/StoredTypes.def"
  }
  __builtin_unreachable();
}
