//===- IntegerCache.h - Attention over keys and values in integers -*- C++
//-*-=//
//
// The references of the cache's kernels for formats of integers
// (docs/numerics.md, "Keys and values in integers").
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_NUMERICS_INTEGERCACHE_H
#define QWEN_LIB_NUMERICS_INTEGERCACHE_H

#include "qwen/ABI/KernelOps.h"

namespace qwen::numerics::integers {

KernelFn<KernelOp::EncodeQuery> encodeQuery;
KernelFn<KernelOp::AppendK> appendK;
KernelFn<KernelOp::AppendV> appendV;
KernelFn<KernelOp::AttentionScores> attentionScores;
KernelFn<KernelOp::AttentionValues> attentionValues;

} // namespace qwen::numerics::integers

#endif // QWEN_LIB_NUMERICS_INTEGERCACHE_H
