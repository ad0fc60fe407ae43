//===- ABITest.cpp - The facts of include/qwen/ABI ------------------------===//

#include "qwen/ABI/Caches.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/ABI/OpWork.h"

#include <gtest/gtest.h>

#include <set>

using namespace qwen;

TEST(CpuFeatures, NamesRoundTrip) {
  const CpuFeatureSet features = {CpuFeature::AVX2, CpuFeature::DotProd};
  EXPECT_EQ(toString(features), "avx2, dotprod");
  EXPECT_EQ(parseFeature("dotprod"), CpuFeature::DotProd);
  EXPECT_EQ(parseFeature("dotproduct"), std::nullopt);
  EXPECT_EQ(featureArch(CpuFeature::DotProd), Arch::AArch64);
}

TEST(CpuFeatures, HostHasTheLeastFeatures) {
  EXPECT_TRUE(hostFeatures().containsAll(leastFeatures(hostArch())));
}

TEST(KernelTable, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const KernelInfo &kernel : kernelTable())
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
}

TEST(KernelTable, EveryIsaOfLeastFeaturesServesEveryOp) {
  for (Arch arch : {Arch::X86_64, Arch::AArch64})
    for (const KernelInfo &kernel : kernelTable())
      EXPECT_NE(selectKernel(kernel.op, kernel.format, leastFeatures(arch),
                             kernel.m > 1),
                nullptr)
          << kernel.name;
}

TEST(KernelTable, EveryGemvHasRowsForSmallBatches) {
  for (const KernelInfo &gemv : kernelTable()) {
    if (!isLinear(gemv.op) || gemv.m != 1)
      continue;
    std::set<int64_t> batches;
    for (const KernelInfo &kernel : kernelTable())
      if (kernel.op == gemv.op && kernel.format == gemv.format &&
          kernel.isa == gemv.isa)
        batches.insert(kernel.m);
    for (int64_t m : {2, 3, 4})
      EXPECT_TRUE(batches.contains(m)) << gemv.name << ", " << m;
  }
}

TEST(KernelTable, SelectionPrefersTheNewestInstructionSet) {
  const CpuFeatureSet vnni = isaInfo(KernelIsa::AVX512VNNI).features;
  EXPECT_EQ(selectKernel(KernelOp::LinearQ8, KernelFormat::Q4_0, vnni)->isa,
            KernelIsa::AVX512VNNI);
  EXPECT_EQ(
      selectKernel(KernelOp::LinearF32, KernelFormat::F32, vnni, true)->name,
      "linear_f32_8x16_avx512");
  const CpuFeatureSet amx = isaInfo(KernelIsa::AMXInt8).features;
  EXPECT_EQ(
      selectKernel(KernelOp::LinearQ8, KernelFormat::Q4_0, amx, true)->name,
      "linear_q4_0_16x16x4_amx_int8");
  EXPECT_EQ(selectKernel(KernelOp::LinearQ8, KernelFormat::Q4_0, amx)->name,
            "linear_q4_0_1x16x4_avx512vnni");
  EXPECT_EQ(selectKernel(KernelOp::LinearQ8, KernelFormat::Q4_0,
                         isaInfo(KernelIsa::NEON).features)
                ->isa,
            KernelIsa::NEON);
  const CpuFeatureSet sve = isaInfo(KernelIsa::SVE).features;
  EXPECT_EQ(selectKernel(KernelOp::LinearQ8, KernelFormat::Q4_0, sve)->name,
            "linear_q4_0_1x16x4_sve");
  const CpuFeatureSet i8mm = isaInfo(KernelIsa::NEONI8MM).features;
  EXPECT_EQ(
      selectKernel(KernelOp::LinearQ8, KernelFormat::Q4_0, sve | i8mm, true)
          ->name,
      "linear_q4_0_8x16x4_sve_i8mm");
  EXPECT_EQ(
      selectKernel(KernelOp::LinearQ8, KernelFormat::Q8_0, i8mm, true)->name,
      "linear_q8_0_8x16x4_neon_i8mm");
  EXPECT_EQ(selectKernel(KernelOp::LinearQ8, KernelFormat::Q4_0, i8mm)->name,
            "linear_q4_0_1x16x4_neon_dotprod");
  // If an instruction set has no kernel of a kind, an older one has it.
  EXPECT_EQ(selectKernel(KernelOp::CheckFinite, KernelFormat::None, sve)->name,
            "check_finite_neon");
}

TEST(Blocks, PackedSizes) {
  EXPECT_EQ(panelBytes(WeightFormat::Q4_0, 32), 288);
  EXPECT_EQ(packedBytes(WeightFormat::Q4_0, 17, 64), 2 * 2 * 288);
  EXPECT_EQ(packedBytes(WeightFormat::F32, 1, 32), 32 * 16 * 4);
  EXPECT_EQ(packedBytes(WeightFormat::BF16, 17, 64), 2 * 64 * 16 * 2);
  EXPECT_EQ(panelBytes(WeightFormat::Q8_0, 64), 2 * 16 * 34);
  // A block of 128 and one of the 32 that remain.
  EXPECT_EQ(panelBytes(WeightFormat::Q4_G128, 160), 32 + 4 * 256 + 32 + 256);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q8_0), 544);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q4_0), 288);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q4_G128), 1056);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q4_M_32), 320);
  EXPECT_EQ(panelBlockBytes(WeightFormat::NL4), 288);
  EXPECT_EQ(panelBlockBytes(WeightFormat::FP4), 288);
  // As many bytes as ggml's blocks of 256 have.
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q6_K), 16 * 210);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q4_K), 16 * 144);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q5_K), 16 * 176);
  EXPECT_EQ(panelBlockBytes(WeightFormat::NL4_XS), 16 * 136);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q5_0), 16 * 22);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q5_M_32), 16 * 24);
  EXPECT_EQ(panelBytes(WeightFormat::Q6_K, 288), 16 * 210 + 288 + 16 * 24);
  // A block of 64 and one of the 32 that remain.
  EXPECT_EQ(panelBytes(WeightFormat::Q4_M_64, 96), 64 + 2 * 256 + 64 + 256);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q4_M_128), 64 + 4 * 256);
  EXPECT_EQ(panelBlockBytes(WeightFormat::Q4_Z_32), 320);
}

TEST(Blocks, FormatsRoundTrip) {
  std::string names;
  for (WeightFormat format : kWeightFormats) {
    names += std::string(weightFormatName(format)) + ' ';
    EXPECT_EQ(parseWeightFormat(weightFormatName(format)), format);
    EXPECT_EQ(weightFormat(kernelFormat(format)), format);
  }
  // Manifests list kernels in this order.
  EXPECT_EQ(names, "f32 bf16 q8_0 q4_0 q4_g128 q4_m_32 nl4 q6_k q4_k q5_k "
                   "nl4_xs q5_0 q5_m_32 q4_m_64 q4_m_128 q4_z_32 q4_z_64 "
                   "q4_z_128 fp4 ");
  EXPECT_EQ(parseWeightFormat("q4_1"), std::nullopt);
  EXPECT_EQ(weightFormat(KernelFormat::F16), std::nullopt);
}

TEST(OpWork, ACallReadsWhatItsTokensRead) {
  // A token reads 10 of 100 bytes; calls have 16 tokens.
  const OpWork work = {.weightBytes = 100,
                       .activeBytes = 10,
                       .tokenBytes = 4,
                       .positionBytes = 1000};
  const StepWork one = workOfStep(work, {7, 1, 16});
  EXPECT_EQ(one.memoryBytes, 10 + 8 * 1000);
  EXPECT_EQ(one.bytes, 10 + 4 + 8 * 1000);
  // A call of 16 tokens and one of 4.
  const StepWork many = workOfStep(work, {0, 20, 16});
  EXPECT_EQ(many.memoryBytes, 100 + 40 + (16 + 20) * 1000);
  OpWork wanted = work;
  wanted.count = kWantedTokens;
  // The first call has no wanted token.
  EXPECT_EQ(workOfStep(wanted, {0, 20, 16}).bytes, 10 + 4 + 36 * 1000);
  // A text has nothing of other counts.
  OpWork own = work;
  own.count = kFirstOwnCount;
  EXPECT_EQ(workOfStep(own, {0, 20, 16}).bytes, 36 * 1000);
}

TEST(OpWork, SequencesRunOneAfterAnother) {
  OpWork work = {.weightBytes = 100,
                 .activeBytes = 10,
                 .tokenBytes = 4,
                 .positionBytes = 1000,
                 .calls = {{.calls = 3, .pageCalls = 2, .positionMacs = 7}}};
  // Three tokens, each the eighth of its sequence.
  const SequenceStep one = {7, 1, 16, 3};
  EXPECT_EQ(workOfStep(work, one).memoryBytes, 30 + 3 * 8 * 1000);
  EXPECT_EQ(workOfStep(work, one).bytes, 30 + 3 * 4 + 3 * 8 * 1000);
  EXPECT_EQ(workOfStep(work, one).macs, 3 * 8 * 7);
  EXPECT_EQ(callsOfStep(work, work.calls[0], {130, 1, 16, 3}).calls,
            3 * (3 + 2 * 2));
  // A call of the first sequence and two tokens of the second, and the rest.
  const SequenceStep two = {0, 10, 12, 2};
  EXPECT_EQ(workOfStep(work, two).memoryBytes, 100 + 80 + (10 + 2 + 10) * 1000);
  work.count = kWantedTokens;
  EXPECT_EQ(workOfStep(work, two).memoryBytes, 10 + 10 + 22 * 1000);
}

TEST(OpWork, TokensMayChooseTheSameExperts) {
  // A token reads two of eight experts.
  const OpWork work = {.weightBytes = 800, .activeBytes = 200, .routed = true};
  EXPECT_EQ(workOfStep(work, {0, 1, 16}).memoryBytes, 200);
  EXPECT_EQ(workOfStep(work, {0, 2, 16}).memoryBytes, 800 - 450);
  EXPECT_EQ(workOfStep(work, {5, 1, 16, 2}).memoryBytes, 800 - 450);
  EXPECT_NEAR(workOfStep(work, {0, 512, 512}).memoryBytes, 800, 1e-6);
}

TEST(OpWork, ATokenMayAttendToItsWholeSequence) {
  const OpWork work = {
      .wholeSequence = true,
      .calls = {{.calls = 3, .pageCalls = 2, .positionMacs = 7}}};
  // Two sequences of three pages.
  const SequenceStep step = {0, 130, 512, 2};
  EXPECT_EQ(workOfStep(work, step).macs, 2 * 130 * 130 * 7);
  EXPECT_EQ(callsOfStep(work, work.calls[0], step).calls,
            2 * 130 * (3 + 2 * 2));
  EXPECT_EQ(callsOfStep(work, work.calls[0], {0, 64, 512}).calls, 64 * 3);
}

TEST(OpWork, CallsAreOfTokensPagesAndPositions) {
  OpWork work = {.calls = {{.calls = 3, .macs = 5},
                           {.kernel = 1, .pageCalls = 2, .positionMacs = 7}}};
  // Position 130 is in the third page.
  const SequenceStep one = {130, 1, 16}, two = {127, 2, 16};
  EXPECT_EQ(callsOfStep(work, work.calls[0], one).calls, 3);
  EXPECT_EQ(callsOfStep(work, work.calls[1], one).calls, 2 * 2);
  EXPECT_EQ(workOfStep(work, one).macs, 5 + 131 * 7);
  // Positions 127 and 128, in the second and in the third page.
  EXPECT_EQ(callsOfStep(work, work.calls[1], two).calls, 2 * (1 + 2));
  EXPECT_EQ(workOfStep(work, two).macs, 2 * 5 + (128 + 129) * 7);
  work.count = kWantedTokens;
  EXPECT_EQ(callsOfStep(work, work.calls[0], two).calls, 3);
}

TEST(Caches, SayTheFormatsOfKeysAndValues) {
  std::vector<CacheInfo> caches = {{"delta", CacheKind::Fixed, 64, {0}}};
  EXPECT_EQ(describeKvFormats(caches), "none");
  // Layers of one format and one size, then of one with the same bytes.
  mergeCache(caches, {"kv", CacheKind::Paged, 256, {1, 2}, 0, KvFormat::F16});
  mergeCache(caches, {"kv", CacheKind::Paged, 256, {4}, 0, KvFormat::F16});
  EXPECT_EQ(caches.size(), 2u);
  EXPECT_EQ(describeKvFormats(caches), "f16");
  mergeCache(caches, {"kv", CacheKind::Paged, 256, {3}, 0, KvFormat::F32});
  EXPECT_EQ(caches.size(), 3u);
  EXPECT_EQ(describeKvFormats(caches), "f32 in 1 layer, f16 in 3 layers");
}
