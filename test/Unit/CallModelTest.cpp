//===- CallModelTest.cpp - Models of calls --------------------------------===//

#include "qwen/CodeGen/Backend/CallCode.h"

#include "qwen/ABI/KernelTable.h"
#include "qwen/CostModel/CallModel.h"
#include "qwen/CostModel/ObjectCode.h"

#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using test::messageOf;

static std::vector<MachineInstruction>
disassemble(const CpuModel &cpu, llvm::ArrayRef<uint32_t> words) {
  return cpu.disassemble(
      {reinterpret_cast<const uint8_t *>(words.data()), 4 * words.size()}, 0);
}

/// Passes of the loops of a kernel in a call.
static std::vector<int64_t> passesOf(const char *kernel, const char *target,
                                     CallSize size) {
  return generateCall(*findKernel(kernel), resolveTarget(target), size).passes;
}

namespace {
TEST(CallModelTest, LoopsHaveTheirPasses) {
  // A loop of fmla, subs and b.ne, in a loop with subs and b.ne; ret. Each fmla
  // waits for the one before.
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const std::vector<MachineInstruction> body =
      disassemble(cpu, {0xd2800001, 0x4e22cc01, 0xf1000421, 0x54ffffc1,
                        0xf1000400, 0x54ffff61, 0xd65f03c0});
  const auto cycles = [&](int64_t outer, int64_t inner) {
    return modelCall(cpu, body, {outer, inner});
  };
  EXPECT_NEAR(cycles(10, 200) / cycles(10, 100), 2, 0.1);
  EXPECT_NEAR(cycles(20, 100) / cycles(10, 100), 2, 0.1);
  EXPECT_EQ(messageOf([&] { modelCall(cpu, body, {1}); }),
            "its code has 2 loops when 1 are expected");
}

TEST(CallModelTest, BranchesOnDataAreNotTaken) {
  // fcmp s0, #0.0; b.eq over fdiv; fdiv s1, s1, s1; ret
  const CpuModel cpu(Arch::AArch64, "neoverse-n2");
  const auto body =
      disassemble(cpu, {0x1e202008, 0x54000040, 0x1e211821, 0xd65f03c0});
  const auto without = disassemble(cpu, {0x1e202008, 0x54000020, 0xd65f03c0});
  EXPECT_GT(modelCall(cpu, body, {}), modelCall(cpu, without, {}) + 1);
}

TEST(GenerateCallTest, PassesFollowFromTheSizes) {
  using Passes = std::vector<int64_t>;
  // 16 values a pass.
  EXPECT_EQ(passesOf("sigmoid_gate_neon", "neoverse-n2", {1024}), Passes{64});
  EXPECT_EQ(passesOf("sigmoid_gate_neon", "neoverse-n2", {512}), Passes{32});
  // A block of 128 values a pass; the last three groups of 32 are no loop.
  EXPECT_EQ(passesOf("hadamard_avx2", "x86-64-v3", {480}), Passes{3});
  // Units of 16 channels for each token.
  EXPECT_EQ(passesOf("short_convolution_avx512", "x86-64-v4",
                     {.length = 16, .tokens = 8}),
            Passes{8});
}

TEST(GenerateCallTest, EveryKernelHasAModel) {
  for (const auto &[arch, target] : {std::pair(Arch::AArch64, "neoverse-n2"),
                                     std::pair(Arch::X86_64, "x86-64-v3")}) {
    const CpuModel cpu(arch, arch == Arch::X86_64 ? "znver3" : "neoverse-n2");
    for (const KernelInfo &kernel : kernelTable()) {
      if (kernel.provider() == KernelProvider::MLIR ||
          kernel.format > KernelFormat::BF16 ||
          &kernel != selectKernel(kernel.op, kernel.format,
                                  resolveTarget(target).features))
        continue;
      const auto cycles = [&](int64_t length) {
        const CallCode call =
            generateCall(kernel, resolveTarget(target),
                         {.length = length, .queries = 2, .tokens = 4});
        const ObjectCode object(call.object, "call");
        const FunctionCode &code = object.functions().front();
        return modelCall(cpu, cpu.disassemble(code.bytes, code.address),
                         call.passes);
      };
      const double one = cycles(512), two = cycles(1024);
      // Softmax computes all slots of a page.
      const bool grows = kernel.op != KernelOp::SoftmaxPage;
      EXPECT_GT(two, grows ? 1.5 * one : 0) << kernel.name;
      EXPECT_LT(two, 2.5 * one) << kernel.name;
    }
  }
}
} // namespace
