//===- KernelVerifier.cpp - Kernels against their reference ---------------===//

#include "qwen/Verify/KernelVerifier.h"

#include "Cases.h"

#include "qwen/Numerics/Kernels.h"

using namespace qwen;
using namespace qwen::verify;

template <typename Fn> static Fn *as(void *function) {
  return reinterpret_cast<Fn *>(function);
}

static void checkRow(Cases &cases, const KernelInfo &row, void *kernel) {
  void *reference = numerics::referenceKernel(row);
  const auto check = [&]<typename Fn>(void (*function)(Cases &, Fn *, Fn *)) {
    function(cases, as<Fn>(kernel), as<Fn>(reference));
  };
  const auto checkFormat = [&]<typename Fn>(void (*function)(
                               Cases &, const KernelInfo &, Fn *, Fn *)) {
    function(cases, row, as<Fn>(kernel), as<Fn>(reference));
  };
  switch (row.op) {
  case KernelOp::LinearF32:
    return checkFormat.operator()<LinearF32Fn>(checkLinear);
  case KernelOp::LinearQ8:
    return checkFormat.operator()<LinearQ8Fn>(checkLinear);
  case KernelOp::AttentionScores:
    return checkFormat(checkScores);
  case KernelOp::AttentionValues:
    return checkFormat(checkValues);
  case KernelOp::Embed:
    return checkFormat(checkEmbed);
  case KernelOp::RopeTable:
    return check(checkRopeTable);
  case KernelOp::RmsNormF32:
    return check(checkRmsNormF32);
  case KernelOp::RmsNormQ8:
    return check(checkRmsNormQ8);
  case KernelOp::QuantizeQ8:
    return check(checkQuantizeQ8);
  case KernelOp::SwiGluF32:
    return check(checkSwiGluF32);
  case KernelOp::SwiGluQ8:
    return check(checkSwiGluQ8);
  case KernelOp::Rope:
    return check(checkRope);
  case KernelOp::NormRope:
    return check(checkNormRope);
  case KernelOp::AppendK:
  case KernelOp::AppendV:
    return checkFormat(checkAppend);
  case KernelOp::SoftmaxPage:
    return check(checkSoftmaxPage);
  case KernelOp::MergePage:
    return check(checkMergePage);
  case KernelOp::FinishAttention:
    return check(checkFinishAttention);
  case KernelOp::CheckFinite:
    return check(checkCheckFinite);
  }
}

int64_t KernelVerifier::verify(const KernelInfo &row, void *kernel) {
  Cases cases(sizes, started);
  checkRow(cases, row, kernel);
  return cases.count();
}
