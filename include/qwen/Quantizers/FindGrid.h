//===- FindGrid.h - Integers that values were made of -----------*- C++ -*-===//

#ifndef QWEN_QUANTIZERS_FINDGRID_H
#define QWEN_QUANTIZERS_FINDGRID_H

#include "qwen/Support/Parallel.h"
#include "qwen/Weights/Owned.h"

#include <memory>

namespace qwen {

/// The integers and scales of a matrix of floats that was trained for a format
/// of integers, or dequantized from one: in the format of the fewest bytes in
/// which each value is an integer times the scale of its block, rounded to the
/// type of the floats (docs/numerics.md). Null if there is none. Values that
/// fit no format are seen at once. Throws Error if there is no room.
std::unique_ptr<Owned> findGrid(const WeightSource &source,
                                unsigned threads = machineThreads());

/// Whether the matrix `source` has at most three values, such as zeros alone:
/// most grids have them, whatever it was made for.
bool hasFewValues(const WeightSource &source);

} // namespace qwen

#endif // QWEN_QUANTIZERS_FINDGRID_H
