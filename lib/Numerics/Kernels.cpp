//===- Kernels.cpp - From rows of the kernel table to functions -----------===//

#include "qwen/Numerics/Kernels.h"

using namespace qwen;
using namespace qwen::numerics;

/// Of two functions, the one for the row's format.
template <typename Fn>
static void *byFormat(const KernelInfo &kernel, Fn *f32, Fn *other) {
  return reinterpret_cast<void *>(kernel.format == KernelFormat::F32 ? f32
                                                                     : other);
}

template <typename Fn> static void *any(Fn *function) {
  return reinterpret_cast<void *>(function);
}

static void *linear(KernelFormat format) {
  switch (format) {
  case KernelFormat::F32:
    return any(linearF32);
  case KernelFormat::BF16:
    return any(linearBF16);
  case KernelFormat::Q8_0:
    return any(linearQ8_0);
  case KernelFormat::Q4_0:
    return any(linearQ4_0);
  case KernelFormat::Q4_G128:
    return any(linearQ4_G128);
  case KernelFormat::None:
  case KernelFormat::F16:
    break;
  }
  __builtin_unreachable();
}

static void *embed(KernelFormat format) {
  switch (format) {
  case KernelFormat::F32:
    return any(embedF32);
  case KernelFormat::BF16:
    return any(embedBF16);
  case KernelFormat::Q8_0:
    return any(embedQ8_0);
  case KernelFormat::Q4_0:
    return any(embedQ4_0);
  case KernelFormat::Q4_G128:
    return any(embedQ4_G128);
  case KernelFormat::None:
  case KernelFormat::F16:
    break;
  }
  __builtin_unreachable();
}

void *numerics::referenceKernel(const KernelInfo &kernel) {
  switch (kernel.op) {
  case KernelOp::LinearF32:
  case KernelOp::LinearQ8:
    return linear(kernel.format);
  case KernelOp::AttentionScores:
    return byFormat(kernel, attentionScoresF32, attentionScoresF16);
  case KernelOp::AttentionValues:
    return byFormat(kernel, attentionValuesF32, attentionValuesF16);
  case KernelOp::Embed:
    return embed(kernel.format);
  case KernelOp::RopeTable:
    return any(ropeTable);
  case KernelOp::RmsNormF32:
    return any(rmsNormF32);
  case KernelOp::RmsNormQ8:
    return any(rmsNormQ8);
  case KernelOp::QuantizeQ8:
    return any(quantizeQ8);
  case KernelOp::SwiGluF32:
    return any(swiGluF32);
  case KernelOp::SwiGluQ8:
    return any(swiGluQ8);
  case KernelOp::Rope:
    return any(rope);
  case KernelOp::NormRope:
    return any(normRope);
  case KernelOp::AppendK:
    return byFormat(kernel, appendKF32, appendKF16);
  case KernelOp::AppendV:
    return byFormat(kernel, appendVF32, appendVF16);
  case KernelOp::SoftmaxPage:
    return any(softmaxPage);
  case KernelOp::MergePage:
    return any(mergePage);
  case KernelOp::FinishAttention:
    return any(finishAttention);
  case KernelOp::CheckFinite:
    return any(checkFinite);
  }
  __builtin_unreachable();
}
