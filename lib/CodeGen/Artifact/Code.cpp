//===- Code.cpp - The code of one file ------------------------------------===//

#include "qwen/CodeGen/Artifact/Code.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/KernelCode.h"
#include "qwen/CodeGen/Backend/Link.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"

#include "llvm/Support/raw_ostream.h"

using namespace qwen;

Code::Code(llvm::ArrayRef<TargetCode> targets) : targets(targets) {
  for (const TargetCode &code : targets) {
    for (mlir::func::FuncOp program : programsOf(*code.module))
      list.push_back(
          {&code, nullptr, nameForTarget(program.getSymName(), code.target)});
    for (const std::string &name : calledKernels(*code.module))
      list.push_back(
          {&code, findKernel(name), nameForTarget(name, code.target)});
  }
}

std::string Code::identity(size_t i) {
  if (i == list.size())
    return "";
  const Part &part = list[i];
  const Target &target = part.code->target;
  std::string text = part.entry + "\n" + target.name + "\n" +
                     featureAttribute(target.features) + "\n" + target.tuneCpu +
                     "\n" + target.tuneFeatures + "\n" + target.triple;
  if (part.kernel)
    return text;
  const std::lock_guard lock(mlir);
  mlir::ModuleOp module = *part.code->module;
  text += "\n" + featureAttribute(usedFeatures(module, target.arch)) + "\n";
  llvm::raw_string_ostream out(text);
  for (auto function : module.getOps<mlir::func::FuncOp>())
    function.print(out);
  return text;
}

std::unique_ptr<llvm::Module> Code::generate(size_t i,
                                             llvm::LLVMContext &context) {
  if (i == list.size()) {
    std::vector<std::string> entries;
    entries.reserve(list.size());
    for (const Part &part : list)
      entries.push_back(part.entry);
    return generateEntryTable(entries, target(), context);
  }
  const Part &part = list[i];
  if (!part.kernel)
    return generateProgram(part, context);
  return generateKernel(*part.kernel, part.code->target, context);
}

std::unique_ptr<llvm::Module>
Code::generateProgram(const Part &part, llvm::LLVMContext &context) {
  const Target &target = part.code->target;
  mlir::ModuleOp module = *part.code->module;
  std::unique_ptr<llvm::Module> result;
  {
    const std::lock_guard lock(mlir);
    // Only functions are translated, not weights.
    mlir::OwningOpRef<mlir::ModuleOp> functions =
        mlir::ModuleOp::create(module.getLoc());
    for (auto function : module.getOps<mlir::func::FuncOp>())
      functions->push_back(function.clone());
    expandStructs(*functions);
    result = translateToLLVM(*functions, context);
  }
  const CpuFeatureSet features = usedFeatures(module, target.arch);
  setTarget(*result, target, features);
  linkDriver(*result, target, features);
  nameForTarget(*result, target);
  optimize(*result, target, part.entry);
  return result;
}
