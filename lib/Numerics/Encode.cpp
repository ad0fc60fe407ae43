//===- Encode.cpp - Encoding and packing weights --------------------------===//

#include "qwen/Numerics/Encode.h"

#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Stored.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::numerics;

std::string_view qwen::numerics::encodeStatusMessage(EncodeStatus status) {
  switch (status) {
  case EncodeStatus::Ok:
    return "";
  case EncodeStatus::NotFinite:
    return "has a value that is not finite";
  case EncodeStatus::ScaleOverflow:
    return "has a block whose scale overflows f16";
  case EncodeStatus::MinimumOverflow:
    return "has a block whose minimum overflows f16";
  case EncodeStatus::ValueOverflow:
    return "has a value that overflows bf16";
  }
  __builtin_unreachable();
}

//===----------------------------------------------------------------------===//
// Encoders
//===----------------------------------------------------------------------===//

template <>
EncodeStatus numerics::encode<Encoder::Float32>(const float *x, int64_t count,
                                                WeightBlock &block) {
  if (!std::all_of(x, x + count,
                   [](float value) { return std::isfinite(value); }))
    return EncodeStatus::NotFinite;
  std::memcpy(block.codes, x, static_cast<size_t>(count) * sizeof(float));
  return EncodeStatus::Ok;
}

template <>
EncodeStatus numerics::encode<Encoder::BFloat16>(const float *x, int64_t count,
                                                 WeightBlock &block) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i]))
      return EncodeStatus::NotFinite;
    const uint16_t half = f32ToBF16(x[i]);
    if (!std::isfinite(bf16ToF32(half)))
      return EncodeStatus::ValueOverflow;
    std::memcpy(block.codes + i * 2, &half, sizeof(half));
  }
  return EncodeStatus::Ok;
}

/// Sets the block's scale d, and `inverse` to the reciprocal of d before it is
/// rounded to f16, 0 for 0.
static EncodeStatus setScale(float d, WeightBlock &block, float &inverse) {
  inverse = d == 0.0f ? 0.0f : 1.0f / d;
  block.scale = f32ToF16(d);
  return std::isfinite(f16ToF32(block.scale)) ? EncodeStatus::Ok
                                              : EncodeStatus::ScaleOverflow;
}

/// Sets the block's scale d = scaleOf(first value of largest magnitude), and
/// `inverse`.
template <typename ScaleOf>
static EncodeStatus findScale(const float *x, int64_t count, ScaleOf scaleOf,
                              WeightBlock &block, float &inverse) {
  float largest = x[0];
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i]))
      return EncodeStatus::NotFinite;
    if (std::fabs(x[i]) > std::fabs(largest))
      largest = x[i];
  }
  return setScale(scaleOf(largest), block, inverse);
}

template <>
EncodeStatus numerics::encode<Encoder::Absolute8>(const float *x, int64_t count,
                                                  WeightBlock &block) {
  float inverse;
  const EncodeStatus status = findScale(
      x, count, [](float largest) { return std::fabs(largest) / 127.0f; },
      block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  for (int64_t i = 0; i < count; ++i) {
    const float value = std::round(x[i] * inverse);
    // Outside only where the reciprocal of a scale below 2^-128 is infinite;
    // the stored scale is zero then, and the code does not matter.
    const auto code =
        std::fabs(value) <= 127.0f ? static_cast<int8_t>(value) : int8_t{0};
    block.codes[i] = static_cast<uint8_t>(code);
  }
  return EncodeStatus::Ok;
}

/// A value rounded down to a code of 4 bits. NaN, 0 times the infinite
/// reciprocal of a scale below 2^-128, becomes 0: the stored scale is zero
/// then, and the code does not matter.
static uint8_t code4(float value) {
  return !(value >= 0.0f) ? 0 : static_cast<uint8_t>(std::min(value, 15.0f));
}

template <>
EncodeStatus numerics::encode<Encoder::Signed4>(const float *x, int64_t count,
                                                WeightBlock &block) {
  float inverse;
  const EncodeStatus status = findScale(
      x, count, [](float largest) { return largest / -8.0f; }, block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = code4(x[i] * inverse + 8.5f);
  return EncodeStatus::Ok;
}

template <>
EncodeStatus numerics::encode<Encoder::Range4>(const float *x, int64_t count,
                                               WeightBlock &block) {
  float least = x[0], most = x[0];
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i]))
      return EncodeStatus::NotFinite;
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
  }
  float inverse;
  const EncodeStatus status = setScale((most - least) / 15.0f, block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  block.minimum = f32ToF16(least);
  if (!std::isfinite(f16ToF32(block.minimum)))
    return EncodeStatus::MinimumOverflow;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = code4((x[i] - least) * inverse + 0.5f);
  return EncodeStatus::Ok;
}

static constexpr auto &kCodebook =
    kCodingInfos[static_cast<size_t>(Coding::Nonlinear4)].codebook;

/// The code of the codebook's value nearest to x, of two that are as near the
/// greater one.
static uint8_t nearestCode(float x) {
  uint8_t code = 0;
  for (size_t i = 1; i < std::size(kCodebook); ++i)
    code += x >= static_cast<float>(kCodebook[i - 1] + kCodebook[i]) / 2.0f;
  return code;
}

/// The best of the scales that docs/numerics.md lists for values of which
/// `largest` is the first of largest magnitude.
static float searchScale(const float *x, int64_t count, float largest) {
  float best = 0.0f, scale = 0.0f;
  const auto offer = [&](float inverse) {
    float qx = 0.0f, qq = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
      const float q = kCodebook[nearestCode(x[i] * inverse)];
      const float weighted = x[i] * x[i] * q;
      qx += weighted * x[i];
      qq += weighted * q;
    }
    if (qq > 0.0f && qx * qx > best * qq) {
      scale = qx / qq;
      best = scale * qx;
    }
  };
  const float least = kCodebook[0];
  offer(1.0f / (-largest / least));
  for (int i = -7; i <= 7; ++i)
    offer((static_cast<float>(i) + least) / largest);
  return scale;
}

template <>
EncodeStatus numerics::encode<Encoder::Codebook4>(const float *x, int64_t count,
                                                  WeightBlock &block) {
  float inverse;
  const EncodeStatus status = findScale(
      x, count,
      [&](float largest) {
        // No f16 holds the scale of larger values, whose squares may overflow.
        return std::fabs(largest) < 1e-15f    ? 0.0f
               : std::fabs(largest) > 0x1p24f ? largest
                                              : searchScale(x, count, largest);
      },
      block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = nearestCode(x[i] * inverse);
  return EncodeStatus::Ok;
}

//===----------------------------------------------------------------------===//
// Panels
//===----------------------------------------------------------------------===//

static constexpr Encoder kEncoders[] = {
#define QWEN_WEIGHT_FORMAT(Id, Name, Coding, Scales, Block, Rule, Help)        \
  Encoder::Rule,
#include "qwen/ABI/WeightFormats.def"
};

/// Puts the codes that an output has in a group into the group's chunks.
template <WeightFormat Format>
static void packGroup(const uint8_t *codes, int64_t output, uint8_t *chunks) {
  constexpr int64_t bits = codingOf(Format).bits;
  uint8_t nibbles[kGroup / 2];
  if constexpr (bits == 4) {
    for (int64_t j = 0; j < kGroup / 2; ++j)
      nibbles[j] = static_cast<uint8_t>(codes[j] | codes[j + kGroup / 2] << 4);
    codes = nibbles;
  }
  constexpr int64_t size = isQuantized(Format) ? 4 : bits / 8;
  for (int64_t at = 0; at < kGroup * bits / 8; at += size)
    std::memcpy(chunks + at * kPanelOutputs + output * size, codes + at, size);
}

/// Puts the scale and the minimum that an output has in a block into the block
/// of the panel, as far as the format has them.
template <WeightFormat Format>
static void putScales(uint16_t scale, uint16_t minimum, int64_t output,
                      uint8_t *block) {
  if constexpr (scalesOf(Format).bytes != 0)
    std::memcpy(block + output * 2, &scale, 2);
  if constexpr (scalesOf(Format).hasMinimum)
    std::memcpy(block + kMinimumOffset + output * 2, &minimum, 2);
}

/// Adds the errors of the `count` codes that `x` became. `count` is a multiple
/// of kGroup.
template <WeightFormat Format>
static void addErrors(const float *x, int64_t count, const WeightBlock &block,
                      EncodeError &sums) {
  constexpr CodingInfo coding = codingOf(Format);
  const auto valueOf = [&](int64_t i) {
    if constexpr (coding.isFloat && coding.bits == 32) {
      return x[i];
    } else if constexpr (coding.isFloat) {
      uint16_t half;
      std::memcpy(&half, block.codes + i * 2, sizeof(half));
      return bf16ToF32(half);
    } else {
      return static_cast<float>(coding.integerOf(block.codes[i])) *
                 f16ToF32(block.scale) +
             f16ToF32(block.minimum);
    }
  };
  // Several sums, so that they are lanes of a vector.
  constexpr int64_t kLanes = 8;
  float errors[kLanes] = {}, values[kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane], error = value - valueOf(i + lane);
      errors[lane] += error * error;
      values[lane] += value * value;
    }
  for (int64_t lane = 0; lane < kLanes; ++lane)
    sums += {errors[lane], values[lane]};
}

template <WeightFormat Format>
static EncodeStatus packPanelAs(const float *const outputs[kPanelOutputs],
                                int64_t k, uint8_t *panel,
                                EncodeError *errors) {
  constexpr CodingInfo coding = codingOf(Format);
  constexpr int64_t most = coding.isFloat ? kGroup : weightBlock(Format);
  constexpr int64_t codeBytes = std::max<int64_t>(coding.bits / 8, 1);
  WeightBlock block;
  for (int64_t begin = 0; begin < k; begin += most) {
    const int64_t count = std::min(most, k - begin);
    uint8_t *groups = panel + panelHeaderBytes(Format);
    for (int64_t output = 0; output < kPanelOutputs; ++output) {
      block.scale = block.minimum = 0;
      if (outputs[output] == nullptr)
        std::memset(block.codes, static_cast<int>(coding.bias),
                    sizeof(block.codes));
      else if (const EncodeStatus status =
                   encode<kEncoders[static_cast<size_t>(Format)]>(
                       outputs[output] + begin, count, block);
               status != EncodeStatus::Ok)
        return status;
      else if (errors != nullptr)
        addErrors<Format>(outputs[output] + begin, count, block,
                          errors[output]);
      putScales<Format>(block.scale, block.minimum, output, panel);
      for (int64_t i = 0; i < count; i += kGroup)
        packGroup<Format>(block.codes + i * codeBytes, output,
                          groups + i / kGroup * panelGroupBytes(Format));
    }
    panel = groups + count / kGroup * panelGroupBytes(Format);
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

/// The code of an integer that the coding has.
static uint8_t codeOf(const CodingInfo &coding, int integer) {
  if (!coding.hasCodebook())
    return static_cast<uint8_t>(integer + coding.bias);
  return static_cast<uint8_t>(
      std::find(coding.codebook, std::end(coding.codebook), integer) -
      coding.codebook);
}

bool numerics::canKeep(WeightFormat format, StoredType type,
                       const uint8_t *from, int64_t k) {
  if (!isQuantized(format) || weightBlock(format) != 32 ||
      scalesOf(format).hasMinimum != hasMinimum(type) ||
      (codingOf(format).bits < 8 && infoOf(type).kept != format))
    return false;
  IntegerBlock block;
  for (int64_t i = 0; i < k; i += 32, from += infoOf(type).bytes)
    if (!readIntegers(type, from, block))
      return false;
  return true;
}

void numerics::keepOutput(WeightFormat format, StoredType type,
                          const uint8_t *from, int64_t k, int64_t output,
                          uint8_t *panel) {
  visitWeightFormat(format, [&]<WeightFormat Format>() {
    if constexpr (isQuantized(Format)) {
      IntegerBlock block;
      uint8_t codes[kGroup];
      for (int64_t i = 0; i < k; i += 32, from += infoOf(type).bytes) {
        readIntegers(type, from, block);
        for (int64_t j = 0; j < kGroup; ++j)
          codes[j] = codeOf(codingOf(Format), block.integers[j]);
        putScales<Format>(block.scale, block.minimum, output, panel);
        packGroup<Format>(codes, output, panel + panelHeaderBytes(Format));
        panel += panelBlockBytes(Format);
      }
    }
  });
}
