//===- BackwardRules.h - Backward passes with own files ---------*- C++ -*-===//
//
// Declares the backward passes that have files of their own, for the table of
// BackwardOps.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_BACKWARDRULES_H
#define QWEN_CALIBRATION_BACKWARDRULES_H

#include "calibration/BackwardPass.h"
#include "qwen/Gradients/Gradients.h"

namespace qwen {

/// A part of a value's rows, which are `width` values wide, from value `column`
/// of token `token` on.
template <typename T>
gradients::HeadRows<T> headRows(T *rows, int64_t width, int64_t token,
                                int64_t column) {
  return {rows + token * width + column, width};
}

// BackwardExperts.cpp
void runForward(BackwardPass &pass, RouteOp op);
void runBackward(BackwardPass &pass, RouteOp op);
void runForward(BackwardPass &pass, ExpertsUpOp op);
void runBackward(BackwardPass &pass, ExpertsUpOp op);
void runForward(BackwardPass &pass, ExpertsDownOp op);
void runBackward(BackwardPass &pass, ExpertsDownOp op);

// BackwardLinearAttention.cpp
void runForward(BackwardPass &pass, ShortConvolutionOp op);
void runBackward(BackwardPass &pass, ShortConvolutionOp op);
void runForward(BackwardPass &pass, DeltaGatesOp op);
void runBackward(BackwardPass &pass, DeltaGatesOp op);
void runForward(BackwardPass &pass, DeltaRuleOp op);
void runBackward(BackwardPass &pass, DeltaRuleOp op);

} // namespace qwen

#endif // QWEN_CALIBRATION_BACKWARDRULES_H
