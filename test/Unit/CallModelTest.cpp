//===- CallModelTest.cpp - Models of calls --------------------------------===//
//
// The number of passes of a loop shows the integers that instructions compute.
//
//===----------------------------------------------------------------------===//

#include "qwen/CostModel/CallModel.h"

#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using test::messageOf;

static constexpr uint64_t kFirst = 1, kSecond = 100, kThird = 7;
static constexpr uint32_t kRet = 0xd65f03c0;

/// Number of instructions that a call of this code with three arguments
/// executes.
static size_t execute(const CpuModel &cpu, llvm::ArrayRef<uint8_t> code) {
  return executeCall(cpu, cpu.disassemble(code, 0x1000),
                     {kFirst, kSecond, kThird})
      .size();
}

static std::vector<uint8_t> bytesOf(llvm::ArrayRef<uint32_t> words) {
  std::vector<uint8_t> bytes;
  for (const uint32_t word : words)
    for (int i = 0; i < 4; ++i)
      bytes.push_back(static_cast<uint8_t>(word >> (8 * i)));
  return bytes;
}

namespace {
/// The integer that instructions leave in a register. A loop of two
/// instructions after them counts it.
struct Computed {
  const char *text;
  std::vector<uint32_t> words;
  uint64_t result;
};

TEST(ExecuteCallTest, WholeNumbersOfAArch64) {
  constexpr uint32_t kStep = 0xd1000529; // sub x9, x9, #1
  constexpr uint32_t kBack = 0xb5ffffe9; // cbnz x9, to the instruction before
  const Computed computed[] = {
      {"mov x9, #6", {0xd28000c9}, 6},
      {"lsr x9, x1, #5", {0xd345fc29}, 3},
      {"ubfx w9, w1, #4, #3", {0x53041829}, 6},
      {"sbfiz x9, x1, #1, #4", {0x937f0c29}, 8},
      {"sxtw x9, w1", {0x93407c29}, 100},
      {"bfi x9, x2, #1, #3 of x1", {0xaa0103e9, 0xb37f0849}, 110},
      {"add x9, x1, w2, sxtw #1", {0x8b22c429}, 114},
      {"sub w9, w1, w2, lsl #2", {0x4b020829}, 72},
      {"adds w9, w2, w1", {0x2b010049}, 107},
      {"mov w9, #-1; add w9, w9, #8", {0x12800009, 0x11002129}, 7},
      {"and x9, x1, #0x7c", {0x927e1029}, 100},
      {"and w9, w1, #0x33333333", {0x1200e429}, 32},
      {"bic x9, x1, x2, asr #1", {0x8aa20429}, 100},
      {"mul w9, w2, w2", {0x1b027c49}, 49},
      {"mov w9, #5; movk x9, #1, lsl #16", {0x528000a9, 0xf2a00029}, 65541},
      {"cmp x1, x2; csinc x9, x2, x1, gt", {0xeb02003f, 0x9a81c449}, 7},
      {"cmp w2, w1; csinc x9, x2, x1, gt", {0x6b01005f, 0x9a81c449}, 101},
      {"cmp w2, w1; csel w9, w1, w2, lo", {0x6b01005f, 0x1a823029}, 100},
      {"cmp w2, w1; cset x9, mi", {0x6b01005f, 0x9a9f57e9}, 1},
      {"stp x1, x2, [sp, #16]; ldp x3, x9, [sp, #16]",
       {0xa9010be1, 0xa94127e3},
       7},
      {"mov x9, #6; ldr q0, [x9], #4", {0xd28000c9, 0x3cc04520}, 10},
      // Bit 3 of 100 is not set.
      {"tbnz w1, #3, over add x9, x9, #1",
       {0xd28000c9, 0x37180041, 0x91000529},
       7},
  };
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  for (const auto &[text, words, result] : computed) {
    std::vector<uint32_t> code = words;
    code.insert(code.end(), {kStep, kBack, kRet});
    EXPECT_EQ(execute(cpu, bytesOf(code)), words.size() + 2 * result + 1)
        << text;
  }
}

TEST(ExecuteCallTest, WholeNumbersOfX86) {
  struct ComputedX86 {
    const char *text;
    std::vector<uint8_t> bytes;
    uint64_t instructions;
    uint64_t result;
  };
  const ComputedX86 computed[] = {
      {"shrq $5 of rsi", {0x48, 0x89, 0xf0, 0x48, 0xc1, 0xe8, 0x05}, 2, 3},
      {"leaq 3(%rsi,%rdx,2), %rax", {0x48, 0x8d, 0x44, 0x56, 0x03}, 1, 117},
      {"leal -1(%rsi), %eax", {0x8d, 0x46, 0xff}, 1, 99},
      {"negq %rdx; leaq 3(%rsi,%rdx,2), %rax",
       {0x48, 0xf7, 0xda, 0x48, 0x8d, 0x44, 0x56, 0x03},
       2,
       89},
      {"subl %edx, %esi; movl %esi, %eax; andl $0x7ffffffc, %eax",
       {0x29, 0xd6, 0x89, 0xf0, 0x25, 0xfc, 0xff, 0xff, 0x7f},
       3,
       92},
      {"notl, sarl $2, notl of esi",
       {0x89, 0xf0, 0xf7, 0xd0, 0xc1, 0xf8, 0x02, 0xf7, 0xd0},
       4,
       25},
      {"cmpl %edx, %esi; cmovll %edx, %eax",
       {0x89, 0xf0, 0x39, 0xd6, 0x0f, 0x4c, 0xc2},
       3,
       100},
      {"cmpl %edx, %esi; cmovbel %edx, %eax",
       {0x89, 0xf0, 0x39, 0xd6, 0x0f, 0x46, 0xc2},
       3,
       100},
      {"cmpl %edx, %esi; cmovgl %edx, %eax",
       {0x89, 0xf0, 0x39, 0xd6, 0x0f, 0x4f, 0xc2},
       3,
       7},
      {"cmpl %edx, %esi; setne %al; movzbl %al, %eax",
       {0x39, 0xd6, 0x0f, 0x95, 0xc0, 0x0f, 0xb6, 0xc0},
       3,
       1},
      {"movslq %esi, %rax; addq $-28, %rax",
       {0x48, 0x63, 0xc6, 0x48, 0x83, 0xc0, 0xe4},
       2,
       72},
      {"imulq $3, %rdx, %rax", {0x48, 0x6b, 0xc2, 0x03}, 1, 21},
      {"pushq %rsi; popq %rax", {0x56, 0x58}, 2, 100},
      {"movq %rsi, -8(%rsp); movq -8(%rsp), %rax",
       {0x48, 0x89, 0x74, 0x24, 0xf8, 0x48, 0x8b, 0x44, 0x24, 0xf8},
       2,
       100},
  };
  const CpuModel cpu(Arch::X86_64, "znver3");
  for (const auto &[text, bytes, instructions, result] : computed) {
    std::vector<uint8_t> code = bytes;
    // decq %rax; jne to it; retq
    code.insert(code.end(), {0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3});
    EXPECT_EQ(execute(cpu, code), instructions + 2 * result + 1) << text;
  }
}

TEST(ExecuteCallTest, BranchesOnDataAreNotTaken) {
  const CpuModel arm(Arch::AArch64, "neoverse-n2");
  // fcmp s0, #0.0; b.eq over nop; nop; ret
  EXPECT_EQ(execute(arm, bytesOf({0x1e202008, 0x54000040, 0xd503201f, kRet})),
            4u);
  const CpuModel x86(Arch::X86_64, "znver3");
  // vucomiss %xmm0, %xmm1; ja over nop; nop; retq
  EXPECT_EQ(execute(x86, {0xc5, 0xf8, 0x2e, 0xc8, 0x77, 0x01, 0x90, 0xc3}), 4u);
}

TEST(ExecuteCallTest, WhatCannotBeFollowedIsRefused) {
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const auto refusal = [&](std::vector<uint32_t> words) {
    return messageOf([&] { execute(cpu, bytesOf(words)); });
  };
  EXPECT_EQ(refusal({0x9ac20829, kRet}),
            "the instruction 'udiv x9, x1, x2' cannot be followed");
  EXPECT_EQ(refusal({0x94000000, kRet}),
            "the instruction 'bl #0' cannot be followed");
  EXPECT_EQ(refusal({0x14000000}), "its code does not end");
  EXPECT_EQ(refusal({0xd503201f}), "its code is left without a return");
  EXPECT_EQ(refusal({0x14000100}), "its code jumps elsewhere with 'b #1024'");
}

TEST(CallModelTest, LoopsRunAsOftenAsTheSizeSays) {
  // fmla v1.4s, v0.4s, v2.4s; subs x1, x1, #1; b.ne; ret
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const std::vector<uint8_t> code =
      bytesOf({0x4e22cc01, 0xf1000421, 0x54ffffc1, kRet});
  const std::vector<MachineInstruction> body = cpu.disassemble(code, 0);
  const auto cycles = [&](int64_t n) {
    return modelCall(cpu, body, *findKernel("check_finite_neon"), {n});
  };
  EXPECT_NEAR(cycles(2000) / cycles(1000), 2, 0.1);
  EXPECT_EQ(messageOf([&] {
              modelCall(cpu, body, *findKernel("linear_f32_1x16_neon"), {1});
            }),
            "kernel 'linear_f32_1x16_neon' is a product, which has no model of "
            "a call");
}
} // namespace
