//===- Shifted.h - Updates of whole groups of integers ----------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_SHIFTED_H
#define QWEN_LIB_WEIGHTS_SHIFTED_H

#include "Grouped.h"

#include "qwen/Weights/Adapted.h"

namespace qwen {

/// `source`, whose groups are not scattered, with an update of columns that are
/// a multiple of its group (QA-LoRA). Codes and scales stay; zero points z
/// become z - product / scale, the zero point of Symmetric, too, and minimums m
/// become m + product, rounded to f16 once. What rounding changes is told as
/// the error of keep(); read() gives the values before.
WeightSourcePtr makeShifted(std::shared_ptr<const GroupedSource> source,
                            LowRankUpdate update);

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_SHIFTED_H
