//===- WeightParts.cpp - The numbers that weights become ------------------===//

#include "qwen/Numerics/WeightParts.h"

#include "PackedWeights.h"

#include <vector>

using namespace qwen;
using namespace qwen::numerics;

/// Writes valueOf(i) for each `step`th weight of a row, as the row's part of an
/// array, unless that is null.
template <typename T, typename ValueOf>
static void writeRow(T *part, int64_t row, int64_t columns, int64_t step,
                     ValueOf valueOf) {
  if (!part)
    return;
  part += row * ceilDiv(columns, step);
  for (int64_t i = 0; i < columns; i += step)
    *part++ = static_cast<T>(valueOf(i));
}

/// Writes the parts of row `row`, which is an output of a panel.
template <WeightFormat Format>
static void readOutput(const uint8_t *panel, int64_t output, int64_t row,
                       int64_t columns, const WeightParts &to) {
  writeRow(to.values, row, columns, 1,
           [&](int64_t i) { return weightValue<Format>(panel, output, i); });
  if constexpr (isQuantized(Format)) {
    constexpr int64_t block = weightBlock(Format);
    writeRow(to.codes, row, columns, 1,
             [&](int64_t i) { return weightCode<Format>(panel, output, i); });
    writeRow(to.integers, row, columns, 1, [&](int64_t i) {
      return weightInteger<Format>(panel, output, i);
    });
    const auto numbers = [&](float *part, int64_t number) {
      writeRow(part, row, columns, block, [&](int64_t i) {
        return weightNumber<Format>(panel, output, i, number);
      });
    };
    numbers(to.scales, 0);
    numbers(to.minimums, 1);
    numbers(to.zeroPoints, 1);
    if constexpr (scalesOf(Format).hasSubBlocks()) {
      const auto integers = [&](int8_t *part, int64_t number) {
        writeRow(part, row, columns, scalesOf(Format).subBlock, [&](int64_t i) {
          return weightSubInteger<Format>(panel, output, i, number);
        });
      };
      integers(to.subScales, 0);
      integers(to.subMinimums, 1);
    }
  }
}

EncodeStatus numerics::encodeRows(WeightFormat format, const float *x,
                                  int64_t rows, int64_t columns,
                                  const WeightParts &parts) {
  std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, columns)));
  for (int64_t first = 0; first < rows; first += kPanelOutputs) {
    const float *outputs[kPanelOutputs] = {};
    const int64_t count = std::min(kPanelOutputs, rows - first);
    for (int64_t i = 0; i < count; ++i)
      outputs[i] = x + (first + i) * columns;
    if (const EncodeStatus status =
            packPanel(format, outputs, columns, panel.data());
        status != EncodeStatus::Ok)
      return status;
    visitWeightFormat(format, [&]<WeightFormat Format>() {
      for (int64_t i = 0; i < count; ++i)
        readOutput<Format>(panel.data(), i, first + i, columns, parts);
    });
  }
  return EncodeStatus::Ok;
}
