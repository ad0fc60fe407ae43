//===- WeightFormats.h - The formats of weights as data ---------*- C++ -*-===//
//
// WeightFormats.def expanded into enumerators and facts.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_WEIGHTFORMATS_H
#define QWEN_ABI_WEIGHTFORMATS_H

#include "qwen/Support/Named.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// How a code, the stored bits of one weight, becomes a number.
enum class Coding : uint8_t {
#define QWEN_CODING(Id, ...) Id,
#include "qwen/ABI/WeightFormats.def"
};

/// A row of QWEN_CODING.
struct CodingInfo {
  int64_t bits;
  bool isFloat;
  int64_t bias;
  int8_t codebook[16] = {};

  constexpr bool hasCodebook() const { return codebook[0] != 0; }
  /// The integer of a code.
  constexpr int integerOf(uint8_t code) const {
    if (hasCodebook())
      return codebook[code];
    return bits == 8 ? static_cast<int8_t>(code)
                     : code - static_cast<int>(bias);
  }
};
inline constexpr CodingInfo kCodingInfos[] = {
#define QWEN_CODING(Id, ...) {__VA_ARGS__},
#include "qwen/ABI/WeightFormats.def"
};

/// What a block has beside its codes.
enum class ScaleKind : uint8_t {
#define QWEN_SCALES(Id, ...) Id,
#include "qwen/ABI/WeightFormats.def"
};

/// A row of QWEN_SCALES.
struct ScaleInfo {
  int64_t numbers;
  bool hasZero;
  int64_t subBlock = 0;
  int64_t subBits = 0;
  int64_t subBias = 0;

  constexpr bool hasMinimum() const { return numbers == 2 && !hasZero; }
  constexpr bool hasSubBlocks() const { return subBlock != 0; }
  /// The sub-scale or sub-minimum of stored bits.
  constexpr int integerOf(uint8_t bits) const {
    return subBits == 8 ? static_cast<int8_t>(bits)
                        : bits - static_cast<int>(subBias);
  }
};
inline constexpr ScaleInfo kScaleInfos[] = {
#define QWEN_SCALES(Id, ...) {__VA_ARGS__},
#include "qwen/ABI/WeightFormats.def"
};

/// Number formats of weights in the image.
enum class WeightFormat : uint8_t {
#define QWEN_WEIGHT_FORMAT(Id, ...) Id,
#include "qwen/ABI/WeightFormats.def"
};
inline constexpr WeightFormat kWeightFormats[] = {
#define QWEN_WEIGHT_FORMAT(Id, ...) WeightFormat::Id,
#include "qwen/ABI/WeightFormats.def"
};

/// A row of QWEN_WEIGHT_FORMAT.
struct WeightFormatInfo {
  std::string_view name;
  Coding coding;
  ScaleKind scales;
  int64_t block;
  std::string_view use;
};
inline constexpr WeightFormatInfo kWeightFormatInfos[] = {
#define QWEN_WEIGHT_FORMAT(Id, Name, CodingId, Scales, Block, Encoder, Help,   \
                           Use)                                                \
  {#Name, Coding::CodingId, ScaleKind::Scales, Block, Use},
#include "qwen/ABI/WeightFormats.def"
};

constexpr const WeightFormatInfo &infoOf(WeightFormat format) {
  return kWeightFormatInfos[static_cast<size_t>(format)];
}
constexpr const CodingInfo &codingOf(WeightFormat format) {
  return kCodingInfos[static_cast<size_t>(infoOf(format).coding)];
}
constexpr const ScaleInfo &scalesOf(WeightFormat format) {
  return kScaleInfos[static_cast<size_t>(infoOf(format).scales)];
}

/// The name on command lines, in IR and in the manifest: "q4_0".
constexpr std::string_view weightFormatName(WeightFormat format) {
  return infoOf(format).name;
}
/// The format of that name, or none.
constexpr std::optional<WeightFormat> parseWeightFormat(std::string_view name) {
  return findNamed(kWeightFormats, name, weightFormatName);
}

/// The names, for errors: "f32, bf16, ... or nl4".
std::string weightFormatList();

/// Whether weights are integers with scales, whose products take quantized
/// activations.
constexpr bool isQuantized(WeightFormat format) {
  return !codingOf(format).isFloat;
}

/// Values along K that share the scales; the last block of an output may be
/// shorter. Of quantized formats.
constexpr int64_t weightBlock(WeightFormat format) {
  return infoOf(format).block;
}

/// Values along K of one output that lie together in a panel.
constexpr int64_t chunkValues(WeightFormat format) {
  return isQuantized(format) ? 4 : 1;
}

/// Calls visitor.operator()<Format>() for `format`.
template <typename Visitor>
constexpr decltype(auto) visitWeightFormat(WeightFormat format,
                                           Visitor &&visitor) {
  switch (format) {
#define QWEN_WEIGHT_FORMAT(Id, ...)                                            \
  case WeightFormat::Id:                                                       \
    return visitor.template operator()<WeightFormat::Id>();
#include "qwen/ABI/WeightFormats.def"
  }
  __builtin_unreachable();
}

} // namespace qwen

#endif // QWEN_ABI_WEIGHTFORMATS_H
