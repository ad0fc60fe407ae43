//===- Kernels.h - The kernels in plain C++ ---------------------*- C++ -*-===//
//
// One reference function for each signature of ABI/KernelABI.h and operand
// format. They define the results of docs/numerics.md: a generated kernel is
// correct if its output equals theirs, bit for bit.
//
// If a function returns 1 (a value is not finite), its other outputs are
// unspecified.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_KERNELS_H
#define QWEN_NUMERICS_KERNELS_H

#include "qwen/ABI/KernelABI.h"
#include "qwen/ABI/KernelTable.h"

namespace qwen::numerics {

// Signatures, shapes and units are those of the function types. The linear
// functions take any m.
LinearF32Fn linearF32;
LinearF32Fn linearBF16;
LinearQ8Fn linearQ8_0;
LinearQ8Fn linearQ4_0;
LinearQ8Fn linearQ4_G128;

AttentionScoresFn attentionScoresF32;
AttentionScoresFn attentionScoresF16;
AttentionValuesFn attentionValuesF32;
AttentionValuesFn attentionValuesF16;

EmbedFn embedF32;
EmbedFn embedBF16;
EmbedFn embedQ8_0;
EmbedFn embedQ4_0;
EmbedFn embedQ4_G128;
RopeTableFn ropeTable;
RmsNormF32Fn rmsNormF32;
RmsNormQ8Fn rmsNormQ8;
QuantizeQ8Fn quantizeQ8;
SwiGluF32Fn swiGluF32;
SwiGluQ8Fn swiGluQ8;
RopeFn rope;
NormRopeFn normRope;
AppendKFn appendKF32;
AppendKFn appendKF16;
AppendKFn appendVF32;
AppendKFn appendVF16;
SoftmaxPageFn softmaxPage;
MergePageFn mergePage;
FinishAttentionFn finishAttention;
CheckFiniteFn checkFinite;

/// The reference function of a kernel. Cast it to the function type of the
/// kernel's op.
void *referenceKernel(const KernelInfo &kernel);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_KERNELS_H
