//===- VerifyTest.cpp - The verifier itself -------------------------------===//
//
// The reference must pass verification, and everything else must fail.
//
//===----------------------------------------------------------------------===//

#include "qwen/Numerics/Kernels.h"
#include "qwen/Support/Error.h"
#include "qwen/Verify/KernelVerifier.h"

#include <gtest/gtest.h>

#include <bit>

using namespace qwen;
namespace ref = qwen::numerics;

static const VerifySizes kSizes = {{32, 160}, {16, 24}, {1, 9}};

/// The first row of an op and format.
static const KernelInfo &rowOf(KernelOp op, KernelFormat format) {
  for (const KernelInfo &row : kernelTable())
    if (row.op == op && row.format == format)
      return row;
  throw Error("no such row");
}

template <typename Fn>
static std::string errorOf(KernelOp op, KernelFormat format, Fn *wrong) {
  KernelVerifier verifier(kSizes);
  try {
    verifier.verify(rowOf(op, format), reinterpret_cast<void *>(wrong));
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

TEST(Verify, AcceptsTheReferenceOfEveryRow) {
  for (const KernelInfo &row : kernelTable()) {
    // The test of the other architecture has the other rows.
    if (row.arch() != hostArch())
      continue;
    KernelVerifier verifier(kSizes);
    SCOPED_TRACE(row.name);
    void *reference = visitKernelOp(row.op, [&]<KernelOp Op>() {
      return reinterpret_cast<void *>(ref::reference<Op>(row.format));
    });
    EXPECT_NO_THROW(EXPECT_GT(verifier.verify(row, reference), 0));
  }
}

/// Changes the last bit of a value.
static void nudge(float &value) {
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1);
}

TEST(Verify, FindsTheLastBitOfTheLastOutput) {
  LinearF32Fn *wrong = [](const float *x, const uint8_t *weights,
                          const float *bias, const float *residual, float *out,
                          int64_t m, int64_t k, int64_t ld, int64_t panelBegin,
                          int64_t panelEnd) {
    ref::reference<KernelOp::LinearF32>(KernelFormat::F32)(
        x, weights, bias, residual, out, m, k, ld, panelBegin, panelEnd);
    if (m == 9 && k == 160)
      nudge(out[(m - 1) * ld + panelEnd * 16 - 1]);
  };
  const std::string error =
      errorOf(KernelOp::LinearF32, KernelFormat::F32, wrong);
  EXPECT_TRUE(error.starts_with("m 9, k 160, panels ")) << error;
  EXPECT_NE(error.find(": out["), std::string::npos) << error;
  EXPECT_NE(error.find(" when the reference has "), std::string::npos) << error;
}

TEST(Verify, FindsAWrongFlag) {
  CheckFiniteFn *wrong = [](const float *, int64_t) { return 0; };
  EXPECT_EQ(errorOf(KernelOp::CheckFinite, KernelFormat::None, wrong),
            "n 1, nan at 0: the flag is 0 when the reference has 1");
}

TEST(Verify, FindsAWrongScaleOfABlock) {
  QuantizeQ8Fn *wrong = [](const float *x, int64_t k, int8_t *q, float *d,
                           int32_t *sums) {
    const int32_t flag = ref::quantizeQ8(x, k, q, d, sums);
    nudge(d[(k - 1) / 128]);
    return flag;
  };
  const std::string error =
      errorOf(KernelOp::QuantizeQ8, KernelFormat::None, wrong);
  EXPECT_TRUE(error.starts_with("k 32, values uniform times 2^0: d[0] is 0x"))
      << error;
}

TEST(Verify, FindsAWriteInFrontOfAnOutput) {
  FinishAttentionFn *wrong = [](const float *o, float l, int64_t headDim,
                                float *y) {
    ref::finishAttention(o, l, headDim, y);
    y[-1] = 0;
  };
  EXPECT_EQ(errorOf(KernelOp::FinishAttention, KernelFormat::None, wrong),
            "head_dim 16, l 1: the kernel writes in front of y");
}

TEST(VerifyDeathTest, StopsAKernelThatWritesBehindAnOutput) {
  FinishAttentionFn *wrong = [](const float *o, float l, int64_t headDim,
                                float *y) {
    ref::finishAttention(o, l, headDim, y);
    y[headDim] = 0;
  };
  EXPECT_DEATH(errorOf(KernelOp::FinishAttention, KernelFormat::None, wrong),
               "");
}
