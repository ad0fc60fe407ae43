//===- Stored.cpp - Numbers of stored tensors -----------------------------===//

#include "qwen/Numerics/Stored.h"

#include "PackedWeights.h"

#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/SmallFloats.h"

#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::numerics;

static float loadF16(const uint8_t *from) {
  return f16ToF32(loadAs<uint16_t>(from));
}

//===----------------------------------------------------------------------===//
// Blocks of integers
//===----------------------------------------------------------------------===//

namespace {
/// Some bits of a byte of a block, from bit `shift` on.
struct Bits {
  int64_t byte, shift, count;
};

/// Where the bits of a code lie: its lower ones and, if there are any, its
/// upper ones.
struct Place {
  Bits low;
  Bits high = {};
};
} // namespace

static int bitsAt(const uint8_t *block, const Bits &bits) {
  return block[bits.byte] >> bits.shift & ((1 << bits.count) - 1);
}

static int codeAt(const uint8_t *block, const Place &place) {
  return bitsAt(block, place.low) | bitsAt(block, place.high)
                                        << place.low.count;
}

/// Puts the lower bits of `code` into a block of zeros.
static void putBits(uint8_t *block, const Bits &bits, int code) {
  block[bits.byte] |=
      static_cast<uint8_t>((code & ((1 << bits.count) - 1)) << bits.shift);
}

static void putCode(uint8_t *block, const Place &place, int code) {
  putBits(block, place.low, code);
  putBits(block, place.high, code >> place.low.count);
}

/// The place of the code of value `i` of a block. A block of 32 values has the
/// values of the low nibbles first. A block of 256 values has two halves of 4
/// runs of 32.
template <StoredType Type> static constexpr Place placeOf(int64_t i) {
  const int64_t j = i / 32, half = i / 128, run = j % 4, l = i % 32;
  const int64_t byte = i % 16, shift = l / 16 * 4;
  if constexpr (Type == StoredType::Q4_0 || Type == StoredType::IQ4_NL)
    return {{2 + byte, shift, 4}};
  else if constexpr (Type == StoredType::Q4_1)
    return {{4 + byte, shift, 4}};
  else if constexpr (Type == StoredType::MXFP4)
    return {{1 + byte, shift, 4}};
  else if constexpr (Type == StoredType::Q5_0)
    return {{6 + byte, shift, 4}, {2 + i / 8, i % 8, 1}};
  else if constexpr (Type == StoredType::Q5_1)
    return {{8 + byte, shift, 4}, {4 + i / 8, i % 8, 1}};
  else if constexpr (Type == StoredType::Q8_0)
    return {{2 + i, 0, 8}};
  else if constexpr (Type == StoredType::Q4_K)
    return {{16 + j / 2 * 32 + l, j % 2 * 4, 4}};
  else if constexpr (Type == StoredType::Q5_K)
    return {{48 + j / 2 * 32 + l, j % 2 * 4, 4}, {16 + l, j, 1}};
  else if constexpr (Type == StoredType::Q6_K)
    return {{64 * half + 32 * (run % 2) + l, run / 2 * 4, 4},
            {128 + 32 * half + l, run * 2, 2}};
  else if constexpr (Type == StoredType::Q3_K)
    return {{32 + 32 * half + l, run * 2, 2}, {l, j, 1}};
  else if constexpr (Type == StoredType::Q2_K)
    return {{16 + 32 * half + l, run * 2, 2}};
  else {
    static_assert(Type == StoredType::IQ4_XS);
    return {{8 + j * 16 + byte, shift, 4}};
  }
}

/// The place of the sub-scale of sub-block `j`, or of its sub-minimum if
/// `number` is 1.
template <StoredType Type>
static constexpr Place subPlaceOf(int64_t number, int64_t j) {
  if constexpr (Type == StoredType::Q4_K || Type == StoredType::Q5_K) {
    if (j < 4)
      return {{4 + j + 4 * number, 0, 6}};
    return {{4 + j + 4, 4 * number, 4}, {4 + j - 4 + 4 * number, 6, 2}};
  } else if constexpr (Type == StoredType::Q6_K) {
    return {{192 + j, 0, 8}};
  } else if constexpr (Type == StoredType::Q3_K) {
    return {{96 + j % 8, j / 8 * 4, 4}, {104 + j % 4, j / 4 * 2, 2}};
  } else if constexpr (Type == StoredType::Q2_K) {
    return {{j, 4 * number, 4}};
  } else {
    static_assert(Type == StoredType::IQ4_XS);
    return {{4 + j / 2, j % 2 * 4, 4}, {2 + j / 4, j % 4 * 2, 2}};
  }
}

/// The integer of value `i` of a block.
template <StoredType Type>
static int integerOf(const uint8_t *block, int64_t i) {
  constexpr CodingInfo coding = codingOf(infoOf(Type).kept);
  const int code = codeAt(block, placeOf<Type>(i));
  if constexpr (Type == StoredType::MXFP4)
    return kE2M1Doubled[code];
  else if constexpr (Type == StoredType::Q3_K)
    return code - 4;
  else if constexpr (Type == StoredType::Q2_K)
    return code;
  else
    return coding.integerOf(static_cast<uint8_t>(code));
}

/// The integer that the scale of a block is multiplied with in sub-block `j`,
/// or the minimum if `number` is 1.
template <StoredType Type>
static int subIntegerOf(const uint8_t *block, int64_t number, int64_t j) {
  constexpr ScaleInfo scales = scalesOf(infoOf(Type).kept);
  const int code = codeAt(block, subPlaceOf<Type>(number, j));
  if constexpr (Type == StoredType::Q3_K)
    return code - 32;
  else if constexpr (Type == StoredType::Q2_K)
    return code;
  else
    return scales.integerOf(static_cast<uint8_t>(code));
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

template <StoredType Type>
static void writeBlockAs(const WeightBlock &block, uint8_t *to) {
  constexpr StoredTypeInfo info = infoOf(Type);
  std::memset(to, 0, static_cast<size_t>(info.bytes));
  const uint16_t halves[] = {block.scale,
                             static_cast<uint16_t>(info.subBlock != 0
                                                       ? block.minimum ^ 0x8000
                                                       : block.minimum)};
  constexpr int64_t numbers = info.hasMinimum ? 2 : 1;
  std::memcpy(to + kScaleOffset<Type>, halves, 2 * numbers);
  for (int64_t i = 0; i < info.values; ++i)
    putCode(to, placeOf<Type>(i), block.codes[i]);
  if constexpr (info.subBlock != 0)
    for (int64_t number = 0; number < numbers; ++number)
      for (int64_t j = 0; j < info.values / info.subBlock; ++j)
        putCode(to, subPlaceOf<Type>(number, j), block.subIntegers[number][j]);
}

void qwen::numerics::writeBlock(StoredType type, const WeightBlock &block,
                                uint8_t *to) {
  visitBlocks(type, [&]<StoredType Type>() {
    if constexpr (hasNumbersOfKept(Type))
      writeBlockAs<Type>(block, to);
  });
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
