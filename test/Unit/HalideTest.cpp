//===- HalideTest.cpp - What the Halide kernels are made of ---------------===//
//
// KernelTest compares the results of these kernels; this file checks their
// code.
//
//===----------------------------------------------------------------------===//

#include "qwen/ABI/Error.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/HalideAdapter.h"
#include "qwen/CodeGen/Halide/HalideKernels.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include <gtest/gtest.h>
#include <map>

using namespace qwen;

static std::vector<KernelInfo> halideKernels() {
  std::vector<KernelInfo> kernels;
  for (const KernelInfo &kernel : kernelTable())
    if (kernel.provider() == KernelProvider::Halide)
      kernels.push_back(kernel);
  return kernels;
}

static std::string emitText(const KernelInfo &kernel) {
  llvm::LLVMContext context;
  return printIR(*emitHalideKernel(kernel, context));
}

// The same input gives the same artifact, byte for byte, regardless of earlier
// compilations in this process.
TEST(HalideKernels, DoNotDependOnTheOrderOfCalls) {
  std::vector<KernelInfo> kernels = halideKernels();
  std::map<std::string_view, std::string> first;
  for (const KernelInfo &kernel : kernels)
    first[kernel.name] = emitText(kernel);
  std::reverse(kernels.begin(), kernels.end());
  for (const KernelInfo &kernel : kernels)
    EXPECT_TRUE(emitText(kernel) == first[kernel.name]) << kernel.name;
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
        emitHalideKernel(kernel, context);
    EXPECT_FALSE(llvm::verifyModule(*module, &llvm::errs()));
    EXPECT_NO_THROW(verifyGenerated(*module));
    const llvm::Function *inner =
        module->getFunction(halideFunctionName(kernel));
    const llvm::Function *adapter = module->getFunction(kernel.name);
    ASSERT_NE(inner, nullptr);
    ASSERT_NE(adapter, nullptr);
    for (const llvm::Function &function : *module)
      EXPECT_TRUE(function.isIntrinsic() || &function == inner ||
                  &function == adapter)
          << function.getName().str();
    EXPECT_TRUE(inner->hasInternalLinkage());
    EXPECT_TRUE(adapter->hasExternalLinkage());
    expectNothingAssumedOfMemory(*inner);
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
