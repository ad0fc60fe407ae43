//===- Stored.cpp - Numbers of stored tensors -----------------------------===//

#include "qwen/Numerics/Stored.h"

#include "PackedWeights.h"

#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/SmallFloats.h"

#include <cmath>

using namespace qwen;
using namespace qwen::numerics;

static float loadF16(const uint8_t *from) {
  return f16ToF32(loadAs<uint16_t>(from));
}

//===----------------------------------------------------------------------===//
// Blocks of integers
//===----------------------------------------------------------------------===//

/// The integers of IQ4_NL and IQ4_XS, by code.
static constexpr auto &kNonlinear4 =
    kCodingInfos[static_cast<size_t>(Coding::Nonlinear4)].codebook;

/// Code `i` of 32 nibbles: those of the low nibbles come first.
static int nibble(const uint8_t *from, int64_t i) {
  return from[i % 16] >> (i / 16 * 4) & 15;
}

/// Code `i` of 32 with a fifth bit in the word `high`.
static int nibbleAndBit(const uint8_t *from, const uint8_t *high, int64_t i) {
  return nibble(from, i) | ((high[i / 8] & 1 << i % 8) != 0 ? 16 : 0);
}

/// Code `l` of 32 in sub-block `j` of Q4_K and Q5_K; two sub-blocks share
/// bytes.
static int pairNibble(const uint8_t *codes, int64_t j, int64_t l) {
  return codes[j / 2 * 32 + l] >> (j % 2 * 4) & 15;
}

/// Two bits of run `run` of 4, which share bytes, of value `l` of a half of
/// Q6_K, Q3_K and Q2_K.
static int runBits(const uint8_t *from, int64_t half, int64_t run, int64_t l) {
  return from[32 * half + l] >> (run * 2) & 3;
}

/// The integer of value `i` of a block. Those of 256 values are 8 runs of 32,
/// in two halves.
template <StoredType Type>
static int integerOf(const uint8_t *block, int64_t i) {
  const int64_t j = i / 32, half = i / 128, run = j % 4, l = i % 32;
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
  else if constexpr (Type == StoredType::MXFP4)
    return kE2M1Doubled[nibble(block + 1, i)];
  else if constexpr (Type == StoredType::Q4_K)
    return pairNibble(block + 16, j, l);
  else if constexpr (Type == StoredType::Q5_K)
    return pairNibble(block + 48, j, l) | (block[16 + l] >> j & 1) << 4;
  else if constexpr (Type == StoredType::Q6_K)
    return ((block[64 * half + 32 * (run % 2) + l] >> (run / 2 * 4) & 15) |
            runBits(block + 128, half, run, l) << 4) -
           32;
  else if constexpr (Type == StoredType::Q3_K)
    return runBits(block + 32, half, run, l) -
           ((block[l] >> j & 1) != 0 ? 0 : 4);
  else if constexpr (Type == StoredType::Q2_K)
    return runBits(block + 16, half, run, l);
  else {
    static_assert(Type == StoredType::IQ4_XS);
    return kNonlinear4[nibble(block + 8 + j * 16, l)];
  }
}

/// The integer that the scale of a block is multiplied with in sub-block `j`,
/// or the minimum if `number` is 1.
template <StoredType Type>
static int subIntegerOf(const uint8_t *block, int64_t number, int64_t j) {
  if constexpr (Type == StoredType::Q4_K || Type == StoredType::Q5_K) {
    const uint8_t *s = block + 4;
    if (j < 4)
      return s[j + 4 * number] & 63;
    return (s[j + 4] >> (4 * number) & 15) | (s[j - 4 + 4 * number] >> 6) << 4;
  } else if constexpr (Type == StoredType::Q6_K) {
    return static_cast<int8_t>(block[192 + j]);
  } else if constexpr (Type == StoredType::Q3_K) {
    const uint8_t *s = block + 96;
    return ((s[j % 8] >> (j / 8 * 4) & 15) | (s[8 + j % 4] >> (j / 4 * 2) & 3)
                                                 << 4) -
           32;
  } else if constexpr (Type == StoredType::Q2_K) {
    return block[j] >> (4 * number) & 15;
  } else {
    static_assert(Type == StoredType::IQ4_XS);
    return ((block[4 + j / 2] >> (j % 2 * 4) & 15) |
            (loadAs<uint16_t>(block + 2) >> (j * 2) & 3) << 4) -
           32;
  }
}

/// Where the scale of a block lies; the minimum follows.
template <StoredType Type> static constexpr int64_t kScaleOffset = 0;
template <> constexpr int64_t kScaleOffset<StoredType::Q6_K> = 208;
template <> constexpr int64_t kScaleOffset<StoredType::Q3_K> = 108;
template <> constexpr int64_t kScaleOffset<StoredType::Q2_K> = 80;

/// Number `number` of a block in f16: the scale, or the minimum, which is
/// added. Blocks of 256 store what is subtracted.
template <StoredType Type>
static uint16_t halfOf(const uint8_t *block, int64_t number) {
  if constexpr (Type == StoredType::MXFP4)
    return number == 0 ? f32ToF16(std::ldexp(1.0F, block[0] - 128)) : 0;
  if (number != 0 && !infoOf(Type).hasMinimum)
    return 0;
  const auto half = loadAs<uint16_t>(block + kScaleOffset<Type> + 2 * number);
  return number != 0 && infoOf(Type).subBlock != 0 ? half ^ 0x8000 : half;
}

/// The same number, which may be too large for f16.
template <StoredType Type>
static float numberOf(const uint8_t *block, int64_t number) {
  if constexpr (Type == StoredType::MXFP4)
    return number == 0 ? std::ldexp(1.0F, block[0] - 128) : 0.0F;
  return f16ToF32(halfOf<Type>(block, number));
}

template <StoredType Type> static bool hasIntegersOf(const uint8_t *from) {
  if constexpr (Type == StoredType::MXFP4)
    return f16ToF32(halfOf<Type>(from, 0)) == numberOf<Type>(from, 0);
  return isFiniteF16(halfOf<Type>(from, 0)) &&
         isFiniteF16(halfOf<Type>(from, 1));
}

template <StoredType Type>
static void readIntegersOf(const uint8_t *from, IntegerBlock &block) {
  block.scale = halfOf<Type>(from, 0);
  block.minimum = halfOf<Type>(from, 1);
  // Bits of 8 values have the same places in all types, so Clang makes vectors.
#pragma clang loop unroll(full)
  for (int64_t begin = 0; begin < infoOf(Type).values; begin += 8)
    for (int64_t i = begin; i < begin + 8; ++i)
      block.integers[i] = static_cast<int8_t>(integerOf<Type>(from, i));
  if constexpr (constexpr int64_t size = infoOf(Type).subBlock; size != 0)
    for (int64_t number : {0, 1})
      for (int64_t j = 0; j < infoOf(Type).values / size; ++j)
        block.subIntegers[number][j] =
            number != 0 && !infoOf(Type).hasMinimum
                ? int8_t{0}
                : static_cast<int8_t>(subIntegerOf<Type>(from, number, j));
}

/// body<Type>() for a type of blocks, a value of its type for others.
template <typename Body> static auto visitBlocks(StoredType type, Body body) {
  using Result = decltype(body.template operator()<StoredType::Q8_0>());
  switch (type) {
#define QWEN_STORED_TYPE(Id, ...)                                              \
  case StoredType::Id:                                                         \
    if constexpr (isBlocks(StoredType::Id))                                    \
      return body.template operator()<StoredType::Id>();                       \
    return Result();
#include "qwen/ABI/StoredTypes.def"
  }
  __builtin_unreachable();
}

bool qwen::numerics::hasIntegers(StoredType type, const uint8_t *from) {
  return visitBlocks(
      type, [&]<StoredType Type>() { return hasIntegersOf<Type>(from); });
}

void qwen::numerics::readIntegers(StoredType type, const uint8_t *from,
                                  IntegerBlock &block) {
  visitBlocks(type,
              [&]<StoredType Type>() { readIntegersOf<Type>(from, block); });
}

/// Dequantizes a block of integers.
template <StoredType Type>
static void dequantizeBlock(const uint8_t *from, float *to) {
  constexpr int64_t values = infoOf(Type).values;
  constexpr int64_t size =
      infoOf(Type).subBlock != 0 ? infoOf(Type).subBlock : values;
  const float scale = numberOf<Type>(from, 0);
  const float minimum = numberOf<Type>(from, 1);
  for (int64_t begin = 0, j = 0; begin < values; begin += size, ++j) {
    float step = scale, least = minimum;
    if constexpr (size != values) {
      step *= static_cast<float>(subIntegerOf<Type>(from, 0, j));
      if constexpr (infoOf(Type).hasMinimum)
        least *= static_cast<float>(subIntegerOf<Type>(from, 1, j));
    }
    for (int64_t i = begin; i < begin + size; ++i) {
      to[i] = static_cast<float>(integerOf<Type>(from, i)) * step;
      // A sum with +0 would change the sign of a zero.
      if constexpr (infoOf(Type).hasMinimum)
        to[i] += least;
    }
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
