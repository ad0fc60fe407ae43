//===- BitcodeKernels.cpp - Kernels that the build compiled ---------------===//

#include "qwen/CodeGen/Backend/BitcodeKernels.h"

#include "qwen/CodeGen/Cpp/CppBitcode.h"
#include "qwen/CodeGen/Halide/HalideBitcode.h"
#include "qwen/Support/Error.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace qwen;
using llvm::Value;

/// The end of the names that a kernel's functions have in Shims.cpp and
/// CppKernels.cpp.
static std::string suffixOf(const KernelInfo &kernel) {
  static constexpr const char *kOps[] = {
#define QWEN_KERNEL_OP(Op, ...) #Op,
#include "qwen/ABI/KernelOps.def"
  };
  static constexpr const char *kFormats[] = {
      "",
#define QWEN_CACHE_FORMAT(Id, ...) #Id,
#include "qwen/ABI/KvFormats.def"
#define QWEN_WEIGHT_FORMAT(Id, ...) #Id,
#include "qwen/ABI/WeightFormats.def"
  };
  return std::string(kOps[static_cast<size_t>(kernel.op)]) +
         kFormats[static_cast<size_t>(kernel.format)];
}

/// Makes Halide's function fit for inlining into other code.
static void cleanKernel(llvm::Function &kernel) {
  kernel.addFnAttr(llvm::Attribute::AlwaysInline);
  const llvm::DataLayout &layout = kernel.getDataLayout();
  for (llvm::Instruction &instruction : llvm::instructions(kernel)) {
    // Halide's alias classes are the names of its buffers, and two kernels call
    // the same memory differently.
    instruction.setMetadata(llvm::LLVMContext::MD_tbaa, nullptr);
    // Halide takes outputs that it reads again to be aligned to a vector. The
    // ABI promises no more than what an element needs.
    Value *pointer = llvm::getLoadStorePointerOperand(&instruction);
    if (!pointer ||
        llvm::isa<llvm::AllocaInst>(llvm::getUnderlyingObject(pointer, 0)))
      continue;
    const llvm::Align element = layout.getABITypeAlign(
        llvm::getLoadStoreType(&instruction)->getScalarType());
    const llvm::Align least =
        std::min(element, llvm::getLoadStoreAlignment(&instruction));
    if (auto *load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
      load->setAlignment(least);
    else
      llvm::cast<llvm::StoreInst>(instruction).setAlignment(least);
  }
}

static std::unique_ptr<llvm::Module> parse(std::string_view bitcode,
                                           const std::string &name,
                                           llvm::LLVMContext &context) {
  llvm::Expected<std::unique_ptr<llvm::Module>> module =
      llvm::parseBitcodeFile(llvm::MemoryBufferRef(bitcode, name), context);
  if (!module)
    throw Error("kernel '" + part::subject(name) +
                "': llvm cannot read its bitcode: " +
                llvm::toString(module.takeError()));
  return std::move(*module);
}

/// Halide's function and its shim, which calls it.
static std::unique_ptr<llvm::Module> linkShim(const KernelInfo &kernel,
                                              const std::string &shim,
                                              llvm::LLVMContext &context) {
  const std::string name(kernel.name);
  std::unique_ptr<llvm::Module> module =
      parse(halideBitcode(kernel), name, context);
  llvm::Function *body = module->getFunction(name);
  body->setName("qwenHalide" + suffixOf(kernel));
  cleanKernel(*body);

  // The module needs the shim, and the shim needs Halide's function.
  std::unique_ptr<llvm::Module> shims =
      parse(halideShims(kernel.arch()), name, context);
  module->getOrInsertFunction(shim,
                              shims->getFunction(shim)->getFunctionType());
  shims->setDataLayout(module->getDataLayout());
  shims->setTargetTriple(module->getTargetTriple());
  if (llvm::Linker::linkModules(*module, std::move(shims),
                                llvm::Linker::LinkOnlyNeeded))
    throw Error("kernel '" + part::subject(name) +
                "' cannot be linked with its shim");
  return module;
}

/// The functions of all kinds, for the lanes of the kernel's registers.
static std::unique_ptr<llvm::Module> readCpp(const KernelInfo &kernel,
                                             llvm::LLVMContext &context) {
  std::unique_ptr<llvm::Module> module =
      parse(cppBitcode(kernel.arch()), std::string(kernel.name), context);
  llvm::GlobalVariable *lanes = module->getGlobalVariable("qwenLanes");
  lanes->setInitializer(llvm::ConstantInt::get(
      lanes->getValueType(), static_cast<uint64_t>(isaInfo(kernel.isa).lanes)));
  return module;
}

std::unique_ptr<llvm::Module>
qwen::emitBitcodeKernel(const KernelInfo &kernel, llvm::LLVMContext &context) {
  const std::string name(kernel.name);
  const bool isHalide = kernel.provider() == KernelProvider::Halide;
  const std::string entry =
      (isHalide ? "qwenShim" : "qwenCpp") + suffixOf(kernel);
  std::unique_ptr<llvm::Module> module =
      isHalide ? linkShim(kernel, entry, context) : readCpp(kernel, context);
  for (llvm::GlobalObject &object : module->global_objects()) {
    if (object.isDeclaration())
      continue;
    object.setComdat(nullptr);
    object.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  llvm::Function *function = module->getFunction(entry);
  function->setName(name);
  function->setLinkage(llvm::GlobalValue::ExternalLinkage);

  while (!module->named_metadata_empty())
    module->eraseNamedMetadata(&*module->named_metadata_begin());
  module->setModuleIdentifier(name);
  module->setSourceFileName(name);
  return module;
}
