//===- KernelCode.cpp - Code of one kernel --------------------------------===//

#include "qwen/CodeGen/Backend/KernelCode.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/BitcodeKernels.h"
#include "qwen/CodeGen/Products/Products.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace qwen;

static std::unique_ptr<llvm::Module>
translateProduct(const KernelInfo &kernel, std::string_view changes,
                 llvm::LLVMContext &context) {
  mlir::DialectRegistry registry;
  registerCodeGenDialects(registry);
  mlir::MLIRContext mlirContext(registry,
                                mlir::MLIRContext::Threading::DISABLED);
  mlirContext.loadAllAvailableDialects();
  const mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&mlirContext));
  emitProduct(kernel, changedSchedule(kernel, changes), *module);
  return translateToLLVM(*module, context);
}

std::unique_ptr<llvm::Module> qwen::generateKernel(const KernelInfo &kernel,
                                                   const Target &target,
                                                   llvm::LLVMContext &context,
                                                   std::string_view changes) {
  std::unique_ptr<llvm::Module> module =
      kernel.provider() == KernelProvider::MLIR
          ? translateProduct(kernel, changes, context)
          : emitBitcodeKernel(kernel, context);
  setTarget(*module, target, kernel.features());
  nameForTarget(*module, target);
  optimize(*module, target,
           nameForTarget(llvm::StringRef(kernel.name), target));
  return module;
}
