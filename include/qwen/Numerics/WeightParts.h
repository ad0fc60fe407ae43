//===- WeightParts.h - The numbers that weights become ----------*- C++ -*-===//

#ifndef QWEN_NUMERICS_WEIGHTPARTS_H
#define QWEN_NUMERICS_WEIGHTPARTS_H

#include "qwen/Numerics/Encode.h"

namespace qwen::numerics {

/// Where the parts of rows of weights go. A null part is not written; those
/// that the format lacks must be null.
struct WeightParts {
  /// For each weight [rows][columns]: its code and the integer of that, and its
  /// value (docs/numerics.md).
  uint8_t *codes = nullptr;
  int8_t *integers = nullptr;
  float *values = nullptr;
  /// For each block [rows][ceil(columns / weightBlock)].
  float *scales = nullptr, *minimums = nullptr, *zeroPoints = nullptr;
  /// For each sub-block: the integers that the scale and the minimum of its
  /// block are multiplied with.
  int8_t *subScales = nullptr, *subMinimums = nullptr;
};

/// Encodes rows of weights as packPanel does, and writes their parts. `columns`
/// is a multiple of kGroup. Where the result is not Ok, the parts are
/// unspecified.
EncodeStatus encodeRows(WeightFormat format, const float *x, int64_t rows,
                        int64_t columns, const WeightParts &parts);

/// The blocks of the `k` values of output `output` of a panel of a quantized
/// format, as putOutput takes them.
void getOutput(WeightFormat format, const uint8_t *panel, int64_t k,
               int64_t output, WeightBlock *blocks);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_WEIGHTPARTS_H
