//===- Transposed.h - Matrices that lie by columns --------------*- C++ -*-===//

#ifndef QWEN_WEIGHTS_TRANSPOSED_H
#define QWEN_WEIGHTS_TRANSPOSED_H

#include "qwen/Weights/StoredTensor.h"
#include "qwen/Weights/WeightSource.h"

namespace qwen {

/// The matrices of `tensor`, floats [matrices, K, outputs]: [matrices, outputs,
/// K].
WeightSourcePtr makeTransposed(const StoredTensor &tensor);

} // namespace qwen

#endif // QWEN_WEIGHTS_TRANSPOSED_H
