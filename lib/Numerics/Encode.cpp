//===- Encode.cpp - Encoding weights --------------------------------------===//

#include "qwen/Numerics/Encode.h"

#include "qwen/Numerics/Float16.h"

#include <algorithm>
#include <array>
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

static bool allFinite(const float *x, int64_t count) {
  return std::all_of(x, x + count,
                     [](float value) { return std::isfinite(value); });
}

template <>
EncodeStatus numerics::encode<Encoder::Float32>(const float *x, int64_t count,
                                                WeightBlock &block) {
  if (!allFinite(x, count))
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

/// The value of largest magnitude, the first of several.
static float largestOf(const float *x, int64_t count) {
  return *std::max_element(x, x + count, [](float a, float b) {
    return std::fabs(a) < std::fabs(b);
  });
}

/// Sets the block's scale d = scaleOf(largestOf(x)), and `inverse`.
template <typename ScaleOf>
static EncodeStatus findScale(const float *x, int64_t count, ScaleOf scaleOf,
                              WeightBlock &block, float &inverse) {
  if (!allFinite(x, count))
    return EncodeStatus::NotFinite;
  return setScale(scaleOf(largestOf(x, count)), block, inverse);
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
    // Rounded half away from zero by the conversion to an integer. The number
    // below 1/2 does not reach the next integer from below a half.
    const float value = x[i] * inverse;
    const float shifted = value + std::copysign(0x1.fffffep-2f, value);
    // Outside only where the reciprocal of a scale below 2^-128 is infinite;
    // the stored scale is zero then, and the code does not matter.
    const int code =
        std::fabs(shifted) < 128.0f ? static_cast<int>(shifted) : 0;
    block.codes[i] = static_cast<uint8_t>(code);
  }
  return EncodeStatus::Ok;
}

/// A value rounded down to a code from 0 to `most`. NaN, 0 times the infinite
/// reciprocal of a scale below 2^-128, becomes 0: the stored scale is zero
/// then, and the code does not matter.
static uint8_t codeTo(int most, float value) {
  return !(value >= 0.0f)
             ? 0
             : static_cast<uint8_t>(std::min(value, static_cast<float>(most)));
}

/// Rounded to nearest, ties to even; of magnitudes below 2^22.
static float roundEven(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/// The rules of Signed4 and Signed5, whose least integer is -half.
static EncodeStatus encodeSigned(const float *x, int64_t count, int half,
                                 WeightBlock &block) {
  const auto least = static_cast<float>(-half);
  float inverse;
  const EncodeStatus status = findScale(
      x, count, [&](float largest) { return largest / least; }, block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = codeTo(2 * half - 1, x[i] * inverse + (0.5f - least));
  return EncodeStatus::Ok;
}

template <>
EncodeStatus numerics::encode<Encoder::Signed4>(const float *x, int64_t count,
                                                WeightBlock &block) {
  return encodeSigned(x, count, 8, block);
}

template <>
EncodeStatus numerics::encode<Encoder::Signed5>(const float *x, int64_t count,
                                                WeightBlock &block) {
  return encodeSigned(x, count, 16, block);
}

/// The rules of Range4 and Range5, with codes to `top`.
static EncodeStatus encodeRange(const float *x, int64_t count, int top,
                                WeightBlock &block) {
  if (!allFinite(x, count))
    return EncodeStatus::NotFinite;
  // The first of equals each, as zeros have two signs.
  const float least = *std::min_element(x, x + count);
  const float most = *std::max_element(x, x + count);
  float inverse;
  const EncodeStatus status =
      setScale((most - least) / static_cast<float>(top), block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  block.minimum = f32ToF16(least);
  if (!std::isfinite(f16ToF32(block.minimum)))
    return EncodeStatus::MinimumOverflow;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = codeTo(top, (x[i] - least) * inverse + 0.5f);
  return EncodeStatus::Ok;
}

template <>
EncodeStatus numerics::encode<Encoder::Range4>(const float *x, int64_t count,
                                               WeightBlock &block) {
  return encodeRange(x, count, 15, block);
}

template <>
EncodeStatus numerics::encode<Encoder::Range5>(const float *x, int64_t count,
                                               WeightBlock &block) {
  return encodeRange(x, count, 31, block);
}

template <>
EncodeStatus numerics::encode<Encoder::Zero4>(const float *x, int64_t count,
                                              WeightBlock &block) {
  if (!allFinite(x, count))
    return EncodeStatus::NotFinite;
  const float least = std::min(*std::min_element(x, x + count), 0.0f);
  const float most = std::max(*std::max_element(x, x + count), 0.0f);
  float inverse;
  const EncodeStatus status = setScale((most - least) / 15.0f, block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  if (!std::isfinite(inverse))
    inverse = 0.0f;
  block.minimum = f32ToF16((0.0f - least) * inverse);
  const float zero = f16ToF32(block.minimum);
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = codeTo(15, x[i] * inverse + zero + 0.5f);
  return EncodeStatus::Ok;
}

template <Coding Values>
static constexpr auto &kCodebook =
    kCodingInfos[static_cast<size_t>(Values)].codebook;

/// Half the way from the value of a code of the codebook to the one before.
template <Coding Values> static float middleBefore(size_t code) {
  return static_cast<float>(kCodebook<Values>[code - 1] +
                            kCodebook<Values>[code]) /
         2.0f;
}

/// The code whose value in the codebook is nearest to x. If two are equally
/// near, the greater one.
template <Coding Values> static uint8_t nearestCode(float x) {
  uint8_t code = 0;
  for (size_t i = 1; i < std::size(kCodebook<Values>); ++i)
    code += x >= middleBefore<Values>(i);
  return code;
}

/// Four candidates of a scale side by side.
using Candidates [[gnu::vector_size(4 * sizeof(float))]] = float;

namespace {
/// The reciprocals of the candidates of a scale. The first of equals wins; the
/// last is there again where `others` has room, which changes nothing.
template <size_t Count> struct Inverses {
  static_assert(Count % 4 == 0);
  float first;
  std::array<float, Count> others;
};
} // namespace

/// The scale with the least error (docs/numerics.md). nearest(x / scale) is an
/// integer, and nearestOf(x) is the same for the other candidates.
template <size_t Count, typename Nearest, typename NearestOf>
static float searchScale(const float *x, int64_t count,
                         const Inverses<Count> &inverses, Nearest nearest,
                         NearestOf nearestOf) {
  float firstX = 0.0f, firstQ = 0.0f;
  Candidates inverse[Count / 4], qx[Count / 4] = {}, qq[Count / 4] = {};
  std::memcpy(inverse, inverses.others.data(), sizeof(inverse));
  for (int64_t i = 0; i < count; ++i) {
    const float first = nearest(x[i] * inverses.first);
    firstX += x[i] * x[i] * first * x[i];
    firstQ += x[i] * x[i] * first * first;
    const auto nearestOthers = nearestOf(x[i]);
    for (size_t j = 0; j < Count / 4; ++j) {
      const Candidates q = nearestOthers(x[i] * inverse[j]);
      const Candidates weighted = x[i] * x[i] * q;
      qx[j] += weighted * x[i];
      qq[j] += weighted * q;
    }
  }
  float best = 0.0f, scale = 0.0f;
  const auto offer = [&](float numerator, float denominator) {
    if (denominator > 0.0f && numerator * numerator > best * denominator) {
      scale = numerator / denominator;
      best = scale * numerator;
    }
  };
  offer(firstX, firstQ);
  for (size_t j = 0; j < Count; ++j)
    offer(qx[j / 4][j % 4], qq[j / 4][j % 4]);
  return scale;
}

/// The scale of values in the codebook. `largest` is the value of largest
/// magnitude, the first if there are several.
template <Coding Values>
static float searchCodebookScale(const float *x, int64_t count, float largest) {
  constexpr auto &codebook = kCodebook<Values>;
  const float least = codebook[0];
  // A step is 1 of 127.
  const float unit = least / -127.0f;
  Inverses<16> inverses = {1.0f / (-largest / least), {}};
  float step = -7.0f;
  for (float &other : inverses.others) {
    other = (std::min(step, 7.0f) * unit + least) / largest;
    ++step;
  }
  const auto nearest = [](float value) {
    return static_cast<float>(kCodebook<Values>[nearestCode<Values>(value)]);
  };
  // These candidates are near each other, and so are the codes of a value: few
  // middles of the codebook lie between them.
  return searchScale(x, count, inverses, nearest, [&](float value) {
    const auto [from, to] =
        std::minmax({nearestCode<Values>(value * inverses.others.front()),
                     nearestCode<Values>(value * inverses.others.back())});
    return [from, to](Candidates scaled) {
      Candidates found =
          Candidates{} + static_cast<float>(kCodebook<Values>[from]);
      for (size_t code = from + size_t{1}; code <= to; ++code)
        found = scaled >= middleBefore<Values>(code)
                    ? Candidates{} + static_cast<float>(kCodebook<Values>[code])
                    : found;
      return found;
    };
  });
}

/// The rule of Codebook4 and Float4.
template <Coding Values>
static EncodeStatus encodeCodebook(const float *x, int64_t count,
                                   WeightBlock &block) {
  float inverse;
  const EncodeStatus status = findScale(
      x, count,
      [&](float largest) {
        // No f16 holds the scale of larger values, whose squares may overflow.
        return std::fabs(largest) < 1e-15f ? 0.0f
               : std::fabs(largest) > 0x1p24f
                   ? largest
                   : searchCodebookScale<Values>(x, count, largest);
      },
      block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  for (int64_t i = 0; i < count; ++i)
    block.codes[i] = nearestCode<Values>(x[i] * inverse);
  return EncodeStatus::Ok;
}

template <>
EncodeStatus numerics::encode<Encoder::Codebook4>(const float *x, int64_t count,
                                                  WeightBlock &block) {
  return encodeCodebook<Coding::Nonlinear4>(x, count, block);
}

template <>
EncodeStatus numerics::encode<Encoder::Float4>(const float *x, int64_t count,
                                               WeightBlock &block) {
  return encodeCodebook<Coding::E2M1>(x, count, block);
}

//===----------------------------------------------------------------------===//
// Encoders with sub-blocks
//===----------------------------------------------------------------------===//

/// The rule of Search6 and Codebook4Sub: scaleOf(values, largest) is the best
/// scale of a sub-block, codeOf(x / scale) a code.
template <WeightFormat Format, typename ScaleOf, typename CodeOf>
static EncodeStatus encodeSearched(const float *x, int64_t count,
                                   ScaleOf scaleOf, CodeOf codeOf,
                                   WeightBlock &block) {
  constexpr ScaleInfo info = scalesOf(Format);
  constexpr int64_t size = info.subBlock;
  constexpr float most = 1 << (info.subBits - 1);
  if (!allFinite(x, count))
    return EncodeStatus::NotFinite;
  // No f16 holds the scale of larger values, whose squares may overflow.
  if (std::fabs(largestOf(x, count)) > 0x1p30f)
    return EncodeStatus::ScaleOverflow;
  float scales[16] = {};
  for (int64_t i = 0; i < count; i += size)
    if (const float largest = largestOf(x + i, size);
        std::fabs(largest) >= 1e-15f)
      scales[i / size] = scaleOf(x + i, largest);
  float inverse;
  const EncodeStatus status =
      setScale(largestOf(scales, std::size(scales)) / -most, block, inverse);
  if (status != EncodeStatus::Ok)
    return status;
  for (int64_t j = 0; j < weightBlock(Format) / size; ++j) {
    const float sub = std::min(roundEven(scales[j] * inverse), most - 1);
    const float step = f16ToF32(block.scale) * sub;
    block.subIntegers[0][j] =
        static_cast<uint8_t>(static_cast<int>(sub) + info.subBias);
    for (int64_t i = j * size; i < std::min(count, (j + 1) * size); ++i)
      block.codes[i] = codeOf(step == 0.0f ? 0.0f : x[i] / step);
  }
  return EncodeStatus::Ok;
}

/// An integer of Offset6.
static float nearest6(float value) {
  return std::clamp(roundEven(value), -32.0f, 31.0f);
}

template <>
EncodeStatus numerics::encode<Encoder::Search6>(const float *x, int64_t count,
                                                WeightBlock &block) {
  const auto scaleOf = [](const float *values, float largest) {
    Inverses<20> inverses = {-32.0f / largest, {}};
    for (size_t j = 0; j < 20; ++j) {
      const int i = std::min(static_cast<int>(j), 17) - 9;
      inverses.others[j] =
          -(32.0f + 0.1f * static_cast<float>(i < 0 ? i : i + 1)) / largest;
    }
    return searchScale(values, 16, inverses, nearest6, [](float) {
      return [](Candidates value) {
        const Candidates rounded = (value + 0x1.8p23f) - 0x1.8p23f;
        const Candidates raised = rounded < -32.0f ? -32.0f : rounded;
        return raised > 31.0f ? 31.0f : raised;
      };
    });
  };
  const auto codeOf = [](float value) {
    return static_cast<uint8_t>(nearest6(value) + 32.0f);
  };
  return encodeSearched<WeightFormat::Q6_K>(x, count, scaleOf, codeOf, block);
}

template <>
EncodeStatus numerics::encode<Encoder::Codebook4Sub>(const float *x,
                                                     int64_t count,
                                                     WeightBlock &block) {
  const auto scaleOf = [](const float *values, float largest) {
    return searchCodebookScale<Coding::Nonlinear4>(values, 32, largest);
  };
  return encodeSearched<WeightFormat::NL4_XS>(
      x, count, scaleOf, nearestCode<Coding::Nonlinear4>, block);
}

/// The rule of Ranges4 and Ranges5, with codes to `most`.
static EncodeStatus encodeRanges(const float *x, int64_t count, int most,
                                 WeightBlock &block) {
  static constexpr int64_t kSize = scalesOf(WeightFormat::Q4_K).subBlock;
  if (!allFinite(x, count))
    return EncodeStatus::NotFinite;
  float steps[8] = {}, depths[8] = {};
  for (int64_t j = 0; j < count / kSize; ++j) {
    const auto [least, greatest] =
        std::minmax_element(x + j * kSize, x + (j + 1) * kSize);
    depths[j] = std::max(-*least, 0.0f);
    steps[j] = (*greatest + depths[j]) / static_cast<float>(most);
  }
  float inverse;
  if (const EncodeStatus status =
          setScale(*std::max_element(steps, steps + 8) / 63.0f, block, inverse);
      status != EncodeStatus::Ok)
    return status;
  const float depth = *std::max_element(depths, depths + 8) / 63.0f;
  const float inverseDepth = depth == 0.0f ? 0.0f : 1.0f / depth;
  block.minimum = f32ToF16(-depth);
  if (!std::isfinite(f16ToF32(block.minimum)))
    return EncodeStatus::MinimumOverflow;
  for (int64_t j = 0; j < 8; ++j) {
    uint8_t &step = block.subIntegers[0][j], &least = block.subIntegers[1][j];
    step = codeTo(63, steps[j] * inverse + 0.5f);
    least = codeTo(63, depths[j] * inverseDepth + 0.5f);
    const float scale = f16ToF32(block.scale) * static_cast<float>(step);
    const float minimum = f16ToF32(block.minimum) * static_cast<float>(least);
    for (int64_t i = j * kSize; i < std::min(count, (j + 1) * kSize); ++i)
      block.codes[i] =
          scale == 0.0f ? 0 : codeTo(most, (x[i] - minimum) / scale + 0.5f);
  }
  return EncodeStatus::Ok;
}

template <>
EncodeStatus numerics::encode<Encoder::Ranges4>(const float *x, int64_t count,
                                                WeightBlock &block) {
  return encodeRanges(x, count, 15, block);
}

template <>
EncodeStatus numerics::encode<Encoder::Ranges5>(const float *x, int64_t count,
                                                WeightBlock &block) {
  return encodeRanges(x, count, 31, block);
}
