//===- HalideTest.cpp - What the Halide kernels are made of ---------------===//
//
// KernelTest compares their results; here is what must hold of the code.
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

static std::vector<KernelInfo> halideRows() {
  std::vector<KernelInfo> rows;
  for (const KernelInfo &row : kernelTable())
    if (row.provider() == KernelProvider::Halide)
      rows.push_back(row);
  return rows;
}

static std::string emitText(const KernelInfo &row) {
  llvm::LLVMContext context;
  return printIR(*emitHalideKernel(row, context));
}

// The same input gives the same artifact, byte for byte, whatever this process
// has compiled before.
TEST(HalideKernels, DoNotDependOnTheOrderOfCalls) {
  std::vector<KernelInfo> rows = halideRows();
  std::map<std::string_view, std::string> first;
  for (const KernelInfo &row : rows)
    first[row.name] = emitText(row);
  std::reverse(rows.begin(), rows.end());
  for (const KernelInfo &row : rows)
    EXPECT_TRUE(emitText(row) == first[row.name]) << row.name;
}

/// The ABI promises that vectors are aligned to their elements, and two kernels
/// may know the same memory by other names.
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
  for (const KernelInfo &row : halideRows()) {
    SCOPED_TRACE(row.name);
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> module = emitHalideKernel(row, context);
    EXPECT_FALSE(llvm::verifyModule(*module, &llvm::errs()));
    EXPECT_NO_THROW(verifyGenerated(*module));
    const llvm::Function *kernel = module->getFunction(halideFunctionName(row));
    const llvm::Function *adapter = module->getFunction(row.name);
    ASSERT_NE(kernel, nullptr);
    ASSERT_NE(adapter, nullptr);
    for (const llvm::Function &function : *module)
      EXPECT_TRUE(function.isIntrinsic() || &function == kernel ||
                  &function == adapter)
          << function.getName().str();
    EXPECT_TRUE(kernel->hasInternalLinkage());
    EXPECT_TRUE(adapter->hasExternalLinkage());
    expectNothingAssumedOfMemory(*kernel);
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
