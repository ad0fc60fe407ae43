//===- Mxfp4.h - Matrices of MXFP4 in two tensors ---------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_MXFP4_H
#define QWEN_LIB_WEIGHTS_MXFP4_H

#include "qwen/Weights/Forms.h"

namespace qwen {

/// The matrix of `shape` whose codes of E2M1 lie in `codes`, the first of two
/// in the low half of a byte, and whose scales, one of E8M0 for 32 columns, are
/// `scales`. The caller has checked the shape of `codes`. Throws Error for
/// other scales.
WeightSourcePtr makeMxfp4(const StoredTensor &codes, const StoredTensor &scales,
                          const WeightShape &shape, std::string_view form);

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_MXFP4_H
