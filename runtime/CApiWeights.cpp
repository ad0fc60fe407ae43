//===- CApiWeights.cpp - C interface of the formats of weights ------------===//

#include "CApiModel.h"
#include "CApiStruct.h"

#include "qwen/Numerics/WeightParts.h"
#include "qwen/Support/Text.h"

using namespace qwen;
using namespace qwen::capi;
using numerics::EncodeStatus;

/// The names, each with a zero at its end, which a std::string_view lacks.
static constexpr const char *kFormatNames[] = {
#define QWEN_WEIGHT_FORMAT(Id, Name, ...) #Name,
#include "qwen/ABI/WeightFormats.def"
};

static qwen_weight_format describe(WeightFormat format) {
  const ScaleInfo &scales = scalesOf(format);
  return {.size = sizeof(qwen_weight_format),
          .bits = static_cast<int32_t>(codingOf(format).bits),
          .name = kFormatNames[static_cast<size_t>(format)],
          .is_float = !isQuantized(format),
          .block = static_cast<int32_t>(weightBlock(format)),
          .sub_block = static_cast<int32_t>(scales.subBlock),
          .has_minimums = scales.hasMinimum(),
          .has_zero_points = scales.hasZero,
          .has_sub_minimums = scales.hasSubBlocks() && scales.numbers == 2};
}

int32_t qwen_weight_format_at(size_t index, qwen_weight_format *format) {
  return guard<int32_t>([&] {
    needArgument("qwen_weight_format_at: format", format);
    if (index >= std::size(kWeightFormats))
      return 0;
    writeStruct("qwen_weight_format_at: format",
                describe(kWeightFormats[index]), format);
    return 1;
  });
}

/// Throws Error if a part is wanted that the format lacks.
static void checkParts(const qwen_weight_parts &parts,
                       const qwen_weight_format &format) {
  const auto check = [&](const void *part, bool has, const char *name) {
    if (part && !has)
      throw Error("qwen_quantize_rows: " + std::string(format.name) +
                  " has no " + name);
  };
  check(parts.codes, !format.is_float, "codes");
  check(parts.integers, !format.is_float, "integers");
  check(parts.scales, !format.is_float, "scales");
  check(parts.minimums, format.has_minimums, "minimums");
  check(parts.zero_points, format.has_zero_points, "zero_points");
  check(parts.sub_scales, format.sub_block, "sub_scales");
  check(parts.sub_minimums, format.has_sub_minimums, "sub_minimums");
}

/// Throws Error if a matrix has no such shape.
static void checkShape(int64_t rows, int64_t columns) {
  // The bytes of the weights are a number of 64 bits.
  if (rows < 0 || columns < 0 || (rows > 0 && columns > INT64_MAX / 4 / rows))
    throw Error("qwen_quantize_rows: there are " + std::to_string(rows) +
                " rows of " + std::to_string(columns) + " weights");
  if (columns % kGroup)
    throw Error("qwen_quantize_rows: columns is " + std::to_string(columns) +
                " when a multiple of " + std::to_string(kGroup) + " is needed");
}

int32_t qwen_quantize_rows(const char *format, const float *weights,
                           int64_t rows, int64_t columns,
                           const qwen_weight_parts *parts) {
  return guard<int32_t>([&] {
    const Need need{"qwen_quantize_rows"};
    need("format", format);
    need("parts", parts);
    const std::optional<WeightFormat> known = parseWeightFormat(format);
    if (!known)
      throw Error("qwen_quantize_rows: format is " + quote(format) + " when " +
                  weightFormatList() + " is needed");
    checkShape(rows, columns);
    need("weights", weights, static_cast<size_t>(rows * columns));
    const auto to = readStruct("qwen_quantize_rows: parts", *parts);
    checkParts(to, describe(*known));
    const EncodeStatus status =
        numerics::encodeRows(*known, weights, rows, columns,
                             {.codes = to.codes,
                              .integers = to.integers,
                              .values = to.values,
                              .scales = to.scales,
                              .minimums = to.minimums,
                              .zeroPoints = to.zero_points,
                              .subScales = to.sub_scales,
                              .subMinimums = to.sub_minimums});
    if (status != EncodeStatus::Ok)
      throw Error("qwen_quantize_rows: the matrix " +
                  std::string(encodeStatusMessage(status)));
    return 0;
  });
}
