//===- Panels.cpp - Packing weights ---------------------------------------===//
//
// Encoded and kept weights in the layout of ABI/Blocks.h.
//
//===----------------------------------------------------------------------===//

#include "qwen/Numerics/Encode.h"

#include "PackedWeights.h"

#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Stored.h"
#include "qwen/Numerics/WeightParts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::numerics;

//===----------------------------------------------------------------------===//
// Encoded numbers
//===----------------------------------------------------------------------===//

static constexpr Encoder kEncoders[] = {
#define QWEN_WEIGHT_FORMAT(Id, Name, Coding, Scales, Block, Rule, ...)         \
  Encoder::Rule,
#include "qwen/ABI/WeightFormats.def"
};

/// Puts the codes that an output has in a group into the group's chunks.
template <WeightFormat Format>
static void packGroup(const uint8_t *codes, int64_t output, uint8_t *chunks) {
  constexpr int64_t bits = codingOf(Format).bits;
  if constexpr (isQuantized(Format)) {
    for (const ChunkBytes &bytes : chunksOf<bits>(codes)) {
      std::memcpy(chunks + output * kStepValues, bytes.data(), kStepValues);
      chunks += kStepValues * kPanelOutputs;
    }
  } else {
    constexpr int64_t size = bits / 8;
    for (int64_t at = 0; at < kGroup * size; at += size)
      std::memcpy(chunks + at * kPanelOutputs + output * size, codes + at,
                  size);
  }
}

/// Puts the stored bits of the integers of an output's sub-blocks into rows.
/// `rows` is the output's byte of the first row.
template <WeightFormat Format>
static void putSubIntegers(const uint8_t *integers, uint8_t *rows) {
  constexpr ScaleInfo scales = scalesOf(Format);
  const auto put = [&](int64_t row, int64_t from, int mask, int bits) {
    uint8_t &byte = rows[row * kPanelOutputs];
    byte =
        static_cast<uint8_t>((byte & ~(mask << from)) | (bits & mask) << from);
  };
  for (int64_t j = 0; j < weightBlock(Format) / scales.subBlock; ++j) {
    if constexpr (scales.subBits == 8) {
      put(j, 0, 255, integers[j]);
    } else {
      put(j / 2, j % 2 * 4, 15, integers[j]);
      put(4 + j / 4, j % 4 * 2, 3, integers[j] >> 4);
    }
  }
}

/// Puts the numbers that an output has in a block into the header.
template <WeightFormat Format>
static void putHeader(const WeightBlock &block, int64_t output,
                      uint8_t *header) {
  constexpr ScaleInfo scales = scalesOf(Format);
  for (int64_t number = 0; number < scales.numbers; ++number) {
    std::memcpy(header + number * kMinimumOffset + output * 2,
                number == 0 ? &block.scale : &block.minimum, 2);
    if constexpr (scales.hasSubBlocks())
      putSubIntegers<Format>(block.subIntegers[number],
                             header + panelNumberBytes(Format) +
                                 number * panelSubScaleBytes(Format) + output);
  }
}

/// Number `number` of the sub-block that holds value `i`, which is multiplied
/// with its integer there.
template <WeightFormat Format>
static float numberOf(const WeightBlock &block, int64_t number, int64_t i) {
  constexpr ScaleInfo scales = scalesOf(Format);
  if (number >= scales.numbers)
    return 0.0f;
  const float value = f16ToF32(number == 0 ? block.scale : block.minimum);
  if constexpr (scales.hasSubBlocks())
    return value * static_cast<float>(scales.integerOf(
                       block.subIntegers[number][i / scales.subBlock]));
  else
    return value;
}

/// Adds the errors of the `count` codes that `x` became. `count` is a multiple
/// of kGroup.
template <WeightFormat Format>
static void addErrors(const float *x, int64_t count, const WeightBlock &block,
                      EncodeError &sums) {
  constexpr CodingInfo coding = codingOf(Format);
  // Several sums, so that they are lanes of a vector.
  constexpr int64_t kLanes = 8;
  float errors[kLanes] = {}, values[kLanes] = {};
  for (int64_t first = 0; first < count; first += kLanes) {
    const float scale = numberOf<Format>(block, 0, first);
    // A minimum or a zero point.
    const float other = numberOf<Format>(block, 1, first);
    const auto valueOf = [&](int64_t i) {
      if constexpr (coding.isFloat && coding.bits == 32) {
        return x[i];
      } else if constexpr (coding.isFloat) {
        uint16_t half;
        std::memcpy(&half, block.codes + i * 2, sizeof(half));
        return bf16ToF32(half);
      } else {
        const auto integer =
            static_cast<float>(coding.integerOf(block.codes[i]));
        return scalesOf(Format).hasZero ? (integer - other) * scale
                                        : integer * scale + other;
      }
    };
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = x[first + lane],
                  error = value - valueOf(first + lane);
      errors[lane] += error * error;
      values[lane] += value * value;
    }
  }
  for (int64_t lane = 0; lane < kLanes; ++lane)
    sums += {errors[lane], values[lane]};
}

/// Puts the `count` values that an output has in a block into the panel, where
/// the block begins at `to`.
template <WeightFormat Format>
static void putBlock(const WeightBlock &block, int64_t count, int64_t output,
                     uint8_t *to) {
  constexpr int64_t codeBytes = std::max<int64_t>(codingOf(Format).bits / 8, 1);
  putHeader<Format>(block, output, to);
  for (int64_t i = 0; i < count; i += kGroup)
    packGroup<Format>(block.codes + i * codeBytes, output,
                      to + panelHeaderBytes(Format) +
                          i / kGroup * panelGroupBytes(Format));
}

template <WeightFormat Format>
static EncodeStatus packPanelAs(const float *const outputs[kPanelOutputs],
                                int64_t k, uint8_t *panel,
                                EncodeError *errors) {
  constexpr CodingInfo coding = codingOf(Format);
  constexpr int64_t most = coding.isFloat ? kGroup : weightBlock(Format);
  WeightBlock block;
  for (int64_t begin = 0; begin < k; begin += most) {
    const int64_t count = std::min(most, k - begin);
    for (int64_t output = 0; output < kPanelOutputs; ++output) {
      block.scale = block.minimum = 0;
      if (outputs[output] == nullptr) {
        block = {};
        std::memset(block.codes, static_cast<int>(coding.bias),
                    sizeof(block.codes));
      } else if (const EncodeStatus status =
                     encode<kEncoders[static_cast<size_t>(Format)]>(
                         outputs[output] + begin, count, block);
                 status != EncodeStatus::Ok)
        return status;
      else if (errors != nullptr)
        addErrors<Format>(outputs[output] + begin, count, block,
                          errors[output]);
      putBlock<Format>(block, count, output, panel);
    }
    panel +=
        panelHeaderBytes(Format) + count / kGroup * panelGroupBytes(Format);
  }
  return EncodeStatus::Ok;
}

EncodeStatus numerics::packPanel(WeightFormat format,
                                 const float *const outputs[kPanelOutputs],
                                 int64_t k, uint8_t *panel,
                                 EncodeError *errors) {
  return visitWeightFormat(format, [&]<WeightFormat Format>() {
    return packPanelAs<Format>(outputs, k, panel, errors);
  });
}

//===----------------------------------------------------------------------===//
// Kept integers
//===----------------------------------------------------------------------===//

/// The codes of a codebook's integers, by the integer as a byte.
template <WeightFormat Format>
static constexpr auto kCodes = [] {
  std::array<uint8_t, 256> codes = {};
  for (size_t i = 0; i < std::size(codingOf(Format).codebook); ++i)
    codes[static_cast<uint8_t>(codingOf(Format).codebook[i])] =
        static_cast<uint8_t>(i);
  return codes;
}();

/// The code of an integer that the format has.
template <WeightFormat Format> static uint8_t codeOf(int8_t integer) {
  if constexpr (codingOf(Format).hasCodebook())
    return kCodes<Format>[static_cast<uint8_t>(integer)];
  else
    return static_cast<uint8_t>(integer + codingOf(Format).bias);
}

bool numerics::canKeep(WeightFormat format, StoredType type,
                       const uint8_t *from, int64_t k) {
  if (!isQuantized(format) || weightBlock(format) != infoOf(type).values ||
      scalesOf(format).hasMinimum() != infoOf(type).hasMinimum ||
      (codingOf(format).bits < 8 && infoOf(type).kept != format))
    return false;
  for (int64_t i = 0; i < k;
       i += weightBlock(format), from += infoOf(type).bytes)
    if (!hasIntegers(type, from))
      return false;
  return true;
}

void numerics::keepOutput(WeightFormat format, StoredType type,
                          const uint8_t *from, int64_t k, int64_t output,
                          uint8_t *panel) {
  visitWeightFormat(format, [&]<WeightFormat Format>() {
    if constexpr (isQuantized(Format)) {
      constexpr int64_t count = weightBlock(Format);
      constexpr ScaleInfo scales = scalesOf(Format);
      IntegerBlock stored;
      WeightBlock block;
      for (int64_t i = 0; i < k; i += count, from += infoOf(type).bytes) {
        readIntegers(type, from, stored);
        block.scale = stored.scale;
        block.minimum = stored.minimum;
        for (int64_t j = 0; j < count; ++j)
          block.codes[j] = codeOf<Format>(stored.integers[j]);
        if constexpr (scales.hasSubBlocks())
          for (int64_t number = 0; number < scales.numbers; ++number)
            for (int64_t j = 0; j < count / scales.subBlock; ++j)
              block.subIntegers[number][j] = static_cast<uint8_t>(
                  stored.subIntegers[number][j] + scales.subBias);
        putBlock<Format>(block, count, output, panel);
        panel += panelBlockBytes(Format);
      }
    }
  });
}

//===----------------------------------------------------------------------===//
// Outputs of panels
//===----------------------------------------------------------------------===//

void numerics::putOutput(WeightFormat format, const WeightBlock *blocks,
                         int64_t k, int64_t output, uint8_t *panel) {
  visitWeightFormat(format, [&]<WeightFormat Format>() {
    if constexpr (isQuantized(Format))
      for (int64_t i = 0; i < k; i += weightBlock(Format), ++blocks) {
        putBlock<Format>(*blocks, std::min(weightBlock(Format), k - i), output,
                         panel);
        panel += panelBlockBytes(Format);
      }
  });
}

/// Reads the `count` values from value `first` on, which share their scales,
/// and the integers of all sub-blocks of their block.
template <WeightFormat Format>
static void readBlock(const uint8_t *panel, int64_t output, int64_t first,
                      int64_t count, WeightBlock &block) {
  constexpr ScaleInfo scales = scalesOf(Format);
  const uint8_t *numbers = weightHeader<Format>(panel, first) + output * 2;
  block.scale = loadAs<uint16_t>(numbers);
  block.minimum =
      scales.numbers == 2 ? loadAs<uint16_t>(numbers + kMinimumOffset) : 0;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = weightCode<Format>(panel, output, first + i);
  if constexpr (scales.hasSubBlocks())
    for (int64_t number = 0; number < scales.numbers; ++number)
      for (int64_t i = 0; i < weightBlock(Format); i += scales.subBlock)
        block.subIntegers[number][i / scales.subBlock] =
            weightSubBits<Format>(panel, output, first + i, number);
}

void numerics::getOutput(WeightFormat format, const uint8_t *panel, int64_t k,
                         int64_t output, WeightBlock *blocks) {
  visitWeightFormat(format, [&]<WeightFormat Format>() {
    if constexpr (isQuantized(Format))
      for (int64_t i = 0; i < k; i += weightBlock(Format), ++blocks)
        readBlock<Format>(panel, output, i,
                          std::min(weightBlock(Format), k - i), *blocks);
  });
}

void numerics::copyOutput(WeightFormat format, int64_t k, const uint8_t *from,
                          int64_t fromOutput, uint8_t *to, int64_t toOutput) {
  // Rows of `size` bytes for each output.
  const auto copy = [&](int64_t rows, int64_t size) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + toOutput * size, from + fromOutput * size,
                  static_cast<size_t>(size));
      from += kPanelOutputs * size;
      to += kPanelOutputs * size;
    }
  };
  const int64_t block = weightBlock(format), numbers = scalesOf(format).numbers;
  for (int64_t i = 0; i < k; i += block) {
    copy(numbers, 2);
    copy(numbers * panelSubScaleBytes(format) / kPanelOutputs, 1);
    copy(std::min(block, k - i) / kGroup * panelGroupBytes(format) /
             (kPanelOutputs * 4),
         4);
  }
}

//===----------------------------------------------------------------------===//
// Exported outputs
//===----------------------------------------------------------------------===//

/// Subtracts the zero point from `count` codes, which become codes of Q5_0.
/// Returns false if it is no integer from 0 to 16.
static bool subtractZero(WeightBlock &block, int64_t count) {
  constexpr auto kBias = codingOf(WeightFormat::Q5_0).bias;
  const float zero = f16ToF32(block.minimum);
  if (!(zero >= 0 && zero <= kBias) || zero != std::trunc(zero))
    return false;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = static_cast<uint8_t>(block.codes[i] + kBias -
                                          static_cast<int64_t>(zero));
  return true;
}

/// Makes the codes of a codebook codes of Q5_0, which has all of its integers.
template <WeightFormat Format>
static void writeIntegers(WeightBlock &block, int64_t count) {
  constexpr CodingInfo coding = codingOf(Format);
  constexpr auto kBias = codingOf(WeightFormat::Q5_0).bias;
  static_assert(coding.codebook[0] >= -kBias && coding.codebook[15] < kBias);
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] =
        static_cast<uint8_t>(coding.integerOf(block.codes[i]) + kBias);
}

template <WeightFormat Format>
static bool exportOutputAs(const uint8_t *panel, int64_t k, int64_t output,
                           uint8_t *to) {
  constexpr StoredType type = exportedType(Format);
  constexpr StoredTypeInfo info = infoOf(type);
  for (int64_t i = 0; i < k; i += info.values, to += info.bytes) {
    if constexpr (!isQuantized(Format)) {
      std::memcpy(to, panel + (i * kPanelOutputs + output) * info.bytes,
                  info.bytes);
    } else {
      WeightBlock block;
      readBlock<Format>(panel, output, i, info.values, block);
      if (scalesOf(Format).hasZero && !subtractZero(block, info.values))
        return false;
      if constexpr (codingOf(Format).hasCodebook() && type == StoredType::Q5_0)
        writeIntegers<Format>(block, info.values);
      writeBlock(type, block, to);
    }
  }
  return true;
}

bool numerics::exportOutput(WeightFormat format, const uint8_t *panel,
                            int64_t k, int64_t output, uint8_t *to) {
  return visitWeightFormat(format, [&]<WeightFormat Format>() {
    return exportOutputAs<Format>(panel, k, output, to);
  });
}
