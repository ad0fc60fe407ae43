//===- HalideTest.cpp - What the Halide kernels are made of ---------------===//
//
// KernelTest compares the results of these kernels; this file checks their
// code.
//
//===----------------------------------------------------------------------===//

#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/BitcodeKernels.h"
#include "qwen/CodeGen/Halide/HalideBitcode.h"
#include "qwen/Support/Error.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include <gtest/gtest.h>

using namespace qwen;

static std::vector<KernelInfo> halideKernels() {
  std::vector<KernelInfo> kernels;
  for (const KernelInfo &kernel : kernelTable())
    if (kernel.provider() == KernelProvider::Halide)
      kernels.push_back(kernel);
  return kernels;
}

/// The ABI only guarantees that vectors are aligned to their elements, and two
/// kernels may access the same memory under different names.
static void expectNothingAssumedOfMemory(const llvm::Function &kernel) {
  for (const llvm::Instruction &instruction : llvm::instructions(kernel)) {
    EXPECT_EQ(instruction.getMetadata(llvm::LLVMContext::MD_tbaa), nullptr);
    const llvm::Value *pointer = llvm::getLoadStorePointerOperand(&instruction);
    if (pointer &&
        !llvm::isa<llvm::AllocaInst>(llvm::getUnderlyingObject(pointer, 0)))
      EXPECT_LE(llvm::getLoadStoreAlignment(&instruction).value(), 8u);
  }
}

TEST(HalideKernels, FitIntoOtherCode) {
  for (const KernelInfo &kernel : halideKernels()) {
    SCOPED_TRACE(kernel.name);
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> module =
        emitBitcodeKernel(kernel, context);
    EXPECT_FALSE(llvm::verifyModule(*module, &llvm::errs()));
    EXPECT_NO_THROW(verifyGenerated(*module));
    int bodies = 0;
    for (const llvm::Function &function : *module) {
      if (function.isIntrinsic())
        continue;
      EXPECT_FALSE(function.isDeclaration()) << function.getName().str();
      EXPECT_EQ(function.hasExternalLinkage(),
                function.getName() == llvm::StringRef(kernel.name));
      if (!function.getName().starts_with("qwenHalide"))
        continue;
      ++bodies;
      expectNothingAssumedOfMemory(function);
    }
    EXPECT_EQ(bodies, 1);
  }
}

TEST(HalideKernels, AreOnlyThoseOfTheProvider) {
  const KernelInfo *product = findKernel("linear_f32_1x16_avx2");
  ASSERT_NE(product, nullptr);
  try {
    halideBitcode(*product);
    FAIL() << "no error";
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(), "kernel 'linear_f32_1x16_avx2' is not one that "
                               "halide provides");
  }
}
