//===- CostModelTest.cpp - Models of machine code -------------------------===//
//
// Small loops with known multiplications and minimum cycles.
//
//===----------------------------------------------------------------------===//

#include "qwen/CostModel/KernelModel.h"
#include "qwen/CostModel/ObjectCode.h"

#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using test::messageOf;
using test::TempDir;

namespace {
constexpr uint32_t kFcvtl = 0x0e217862; // fcvtl v2.4s, v3.4h
constexpr uint32_t kMov = 0xd2800081;   // mov x1, #4
constexpr uint32_t kSdot = 0x4e859480;  // sdot v0.4s, v4.16b, v5.16b
constexpr uint32_t kStep1 = 0xf1000421; // subs x1, x1, #1
constexpr uint32_t kBack2 = 0x54ffffc1; // b.ne, two instructions back
constexpr uint32_t kFmla = 0x4e22cc01;  // fmla v1.4s, v0.4s, v2.4s
constexpr uint32_t kStep0 = 0xf1000400; // subs x0, x0, #1
constexpr uint32_t kBack7 = 0x54ffff21; // b.ne, seven instructions back
constexpr uint32_t kRet = 0xd65f03c0;

/// A loop over groups in a loop over blocks.
constexpr uint32_t kBlocks[] = {kFcvtl, kMov,   kSdot,  kStep1, kBack2,
                                kFmla,  kStep0, kBack7, kRet};

std::vector<MachineInstruction> disassemble(const CpuModel &cpu,
                                            llvm::ArrayRef<uint32_t> words) {
  return cpu.disassemble(
      {reinterpret_cast<const uint8_t *>(words.data()), 4 * words.size()},
      0x1000);
}

TEST(CpuModelTest, InstructionsKnowWhereTheyLead) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const std::vector<MachineInstruction> body = disassemble(cpu, kBlocks);
  ASSERT_EQ(body.size(), 9u);
  EXPECT_EQ(body[2].text, "sdot v0.4s, v4.16b, v5.16b");
  EXPECT_EQ(body[2].name(), "sdot");
  EXPECT_FALSE(body[2].target);
  EXPECT_EQ(body[4].target, 0x1008u);
  EXPECT_TRUE(body[4].fallsThrough);
  EXPECT_FALSE(body[8].fallsThrough);
}

TEST(CpuModelTest, DotsTakeTheirPipes) {
  // Two dots a cycle; a dot that waits for itself takes three cycles.
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const std::vector<MachineInstruction> body = disassemble(cpu, {kSdot, kSdot});
  const Trace trace = {&body[0], &body[1]};
  EXPECT_DOUBLE_EQ(cpu.leastCycles(trace), 1);
  EXPECT_GT(cpu.cycles(trace), 1.9);
}

TEST(CpuModelTest, FractionsOfConversionsCostTheSame) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  // scvtf v0.4s, v1.4s; scvtf v0.4s, v1.4s, #4
  const std::vector<MachineInstruction> body =
      disassemble(cpu, {0x4e21d820, 0x4f3ce420});
  EXPECT_DOUBLE_EQ(cpu.leastCycles({&body[0]}), cpu.leastCycles({&body[1]}));
}

TEST(CpuModelTest, MovesKeepWhatTheirSourceWas) {
  // vmovaps %ymm7, %ymm13; vmulps from %ymm7 to %ymm6, from there to %ymm7 and
  // again; vmovaps %ymm13, %ymm7: a pass needs no product of the one before.
  const CpuModel cpu(Arch::X86_64, "znver3");
  const std::vector<uint8_t> code = {0xc5, 0x7c, 0x28, 0xef, 0xc5, 0xc4, 0x59,
                                     0xf3, 0xc5, 0xcc, 0x59, 0xfb, 0xc5, 0xc4,
                                     0x59, 0xfb, 0xc5, 0x7c, 0x29, 0xef};
  const std::vector<MachineInstruction> body = cpu.disassemble(code, 0);
  Trace trace;
  for (const MachineInstruction &instruction : body)
    trace.push_back(&instruction);
  EXPECT_LT(cpu.cycles(trace), 3);
}

TEST(CpuModelTest, UnknownIsRefused) {
  EXPECT_EQ(messageOf([] { CpuModel(Arch::AArch64, "znver4"); }),
            "llvm does not know the cpu 'znver4' of aarch64");
  EXPECT_EQ(messageOf([] { CpuModel(Arch::X86_64, "i486"); }),
            "llvm has no model of the pipeline of 'i486'; name a cpu that it "
            "models, such as znver4");
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  EXPECT_EQ(messageOf([&] { disassemble(cpu, {kSdot, ~0u}); }),
            "no instruction of aarch64 at address 0x1004");
}

/// Models the body as a product of Order::GroupDots whose innermost loop has
/// `unroll` groups.
KernelRate modelDots(const CpuModel &cpu,
                     llvm::ArrayRef<MachineInstruction> body, int64_t unroll) {
  const KernelInfo &kernel = *findKernel("linear_q4_0_1x16x4_neon_dotprod");
  KernelSchedule schedule = scheduleOf(kernel);
  std::get<GroupDotsSchedule>(schedule.loops).unroll = unroll;
  return modelKernel(cpu, body, kernel, schedule);
}

TEST(KernelModelTest, ABlockIsFourGroups) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const KernelRate rate = modelDots(cpu, disassemble(cpu, kBlocks), 1);
  EXPECT_EQ(rate.macs, 4 * 16);
  EXPECT_DOUBLE_EQ(rate.peak, 32);
  // The dots of a block wait for each other.
  EXPECT_GE(rate.cycles, 4);
  EXPECT_LT(rate.cycles, 32);
}

TEST(KernelModelTest, APassMayHaveSeveralGroups) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const std::vector<MachineInstruction> body = disassemble(cpu, kBlocks);
  EXPECT_EQ(modelDots(cpu, body, 2).macs, 2 * 16);
  EXPECT_EQ(modelDots(cpu, body, 4).macs, 16);
}

TEST(KernelModelTest, CodeForTheLengthOfVectorsCounts) {
  constexpr uint32_t kLd1b = 0xa400a004;  // ld1b { z4.b }, p0/z, [x0]
  constexpr uint32_t kLdrZ = 0x858043e5;  // ldr z5, [sp]
  constexpr uint32_t kSdotZ = 0x44850080; // sdot z0.s, z4.b, z5.b
  constexpr uint32_t kBack3 = 0x54ffffa1; // b.ne, three instructions back
  constexpr uint32_t kBack5 = 0x54ffff61; // b.ne, five instructions back
  const auto macsOn = [](const char *name) {
    const CpuModel cpu(Arch::AArch64, name);
    const std::vector<MachineInstruction> body =
        disassemble(cpu, {kSdot, kSdot, kLdrZ, kSdotZ, kStep1, kBack5, kLd1b,
                          kSdotZ, kStep1, kBack3, kRet});
    return modelDots(cpu, body, 4).macs;
  };
  EXPECT_EQ(macsOn("neoverse-n2"), 3 * 16);
  EXPECT_EQ(macsOn("neoverse-v1"), 32);
}

TEST(KernelModelTest, ALoopOfAnotherIsOneGroup) {
  // If a loop does not scale its sums, the loop around it does.
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  EXPECT_EQ(modelLoop(cpu, disassemble(cpu, kBlocks)).macs, 16);
}

TEST(KernelModelTest, DotsBesideMatrixProductsDoNotCount) {
  // smmla v0.4s, v4.16b, v5.16b; a dot with sub-minimums; b.ne, three back.
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  EXPECT_EQ(modelLoop(cpu, disassemble(cpu, {0x4e85a480, kSdot, kStep1,
                                             0x54ffffa1, kRet}))
                .macs,
            32);
}

TEST(KernelModelTest, FloatsCountWhereThereAreNoIntegers) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const KernelInfo &kernel = *findKernel("linear_f32_1x16_neon");
  EXPECT_EQ(modelKernel(cpu, disassemble(cpu, {kFmla, kStep1, kBack2, kRet}),
                        kernel, scheduleOf(kernel))
                .macs,
            4);
}

TEST(KernelModelTest, WidenedFloatsAreNoScales) {
  // Conversions around the innermost loop do not count.
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const KernelInfo &kernel = *findKernel("attention_scores_f16_neon");
  EXPECT_EQ(modelKernel(cpu,
                        disassemble(cpu, {kFcvtl, kMov, kFmla, kStep1, kBack2,
                                          kMov, kStep0, kBack7, kRet}),
                        kernel, scheduleOf(kernel))
                .macs,
            4);
}

TEST(KernelModelTest, CodeWithoutLoopsIsRefused) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  EXPECT_EQ(
      messageOf([&] { modelDots(cpu, disassemble(cpu, {kSdot, kRet}), 1); }),
      "there is no loop with multiplications");
}

TEST(KernelModelTest, LongCodeIsRefused) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const std::vector<uint32_t> words(40000, kSdot);
  EXPECT_EQ(messageOf([&] { modelLoop(cpu, disassemble(cpu, words)); }),
            "a function of 40000 instructions is no kernel");
}

TEST(ObjectCodeTest, OtherFilesAreRefused) {
  const TempDir folder;
  const std::string path = (folder.path() / "a.so").string();
  EXPECT_NE(messageOf([&] { ObjectCode object(path); }).find("cannot read"),
            std::string::npos);
  folder.write("a.so", "no elf");
  EXPECT_NE(messageOf([&] { ObjectCode object(path); }).find(path),
            std::string::npos);
}
} // namespace
