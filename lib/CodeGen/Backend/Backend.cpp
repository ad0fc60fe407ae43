//===- Backend.cpp - MLIR to machine code ---------------------------------===//

#include "qwen/CodeGen/Backend/Backend.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/ArmNeon/ArmNeonToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Driver/DriverBitcode.h"
#include "qwen/Support/Error.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/AttributeMask.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/IPO/Internalize.h"
#include <mutex>

using namespace qwen;

//===----------------------------------------------------------------------===//
// MLIR to LLVM IR
//===----------------------------------------------------------------------===//

void qwen::registerCodeGenDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::arith::ArithDialect, mlir::arm_neon::ArmNeonDialect,
                  mlir::cf::ControlFlowDialect, mlir::func::FuncDialect,
                  mlir::LLVM::LLVMDialect, mlir::math::MathDialect,
                  mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  mlir::registerArmNeonDialectTranslation(registry);
}

std::unique_ptr<llvm::Module>
qwen::translateToLLVM(mlir::ModuleOp module, llvm::LLVMContext &context) {
  mlir::PassManager passes(module.getContext());
  passes.addPass(mlir::createSCFToControlFlowPass());
  passes.addPass(mlir::createConvertVectorToLLVMPass());
  passes.addPass(mlir::createConvertMathToLLVMPass());
  passes.addPass(mlir::createArithToLLVMConversionPass());
  passes.addPass(mlir::createConvertControlFlowToLLVMPass());
  passes.addPass(mlir::createConvertFuncToLLVMPass());
  passes.addPass(mlir::createReconcileUnrealizedCastsPass());
  // The first message of the passes becomes the Error.
  std::string message;
  mlir::ScopedDiagnosticHandler handler(module.getContext(),
                                        [&](mlir::Diagnostic &diagnostic) {
                                          if (message.empty())
                                            message = diagnostic.str();
                                        });
  if (mlir::failed(passes.run(module)))
    throw Error("cannot lower to the llvm dialect: " + message);
  std::unique_ptr<llvm::Module> result =
      mlir::translateModuleToLLVMIR(module, context);
  if (!result)
    throw Error("cannot translate to llvm ir: " + message);
  return result;
}

//===----------------------------------------------------------------------===//
// Target
//===----------------------------------------------------------------------===//

static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(const Target &target) {
  static std::once_flag initialised;
  std::call_once(initialised, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
  const llvm::Triple triple(target.triple);
  std::string message;
  const llvm::Target *llvmTarget =
      llvm::TargetRegistry::lookupTarget(triple, message);
  if (!llvmTarget)
    throw Error("llvm cannot generate code for " +
                part::subject(target.triple) + ": " + message);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  // The attributes of each function give its features.
  return std::unique_ptr<llvm::TargetMachine>(llvmTarget->createTargetMachine(
      triple, "", "", options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
      llvm::CodeGenOptLevel::Default));
}

std::string qwen::featureAttribute(CpuFeatureSet features) {
  std::string result;
  for (std::string_view name : features.names()) {
    if (!result.empty())
      result += ',';
    result += '+';
    result += name;
  }
  return result;
}

static void removeStringAttributes(llvm::Function &function) {
  llvm::AttributeMask mask;
  for (const llvm::Attribute &attribute : function.getAttributes().getFnAttrs())
    if (attribute.isStringAttribute())
      mask.addAttribute(attribute.getKindAsString());
  function.removeFnAttrs(mask);
}

void qwen::setTarget(llvm::Module &module, const Target &target,
                     CpuFeatureSet features) {
  module.setTargetTriple(llvm::Triple(target.triple));
  module.setDataLayout(createTargetMachine(target)->createDataLayout());
  if (llvm::NamedMDNode *flags = module.getModuleFlagsMetadata())
    flags->eraseFromParent();
  std::string attribute = featureAttribute(features);
  if (!target.tuneFeatures.empty())
    attribute += "," + target.tuneFeatures;
  for (llvm::Function &function : module) {
    if (function.isIntrinsic())
      continue;
    removeStringAttributes(function);
    // All parts are linked into one ELF, and nothing is resolved at run time.
    if (!function.hasLocalLinkage())
      function.setVisibility(llvm::GlobalValue::HiddenVisibility);
    function.setDSOLocal(true);
    if (function.isDeclaration())
      continue;
    function.removeFnAttr(llvm::Attribute::UWTable);
    function.setDoesNotThrow();
    function.addFnAttr("no-builtins");
    function.addFnAttr("target-cpu",
                       target.arch == Arch::X86_64 ? "x86-64" : "generic");
    function.addFnAttr("target-features", attribute);
    function.addFnAttr("tune-cpu", target.tuneCpu);
    // Callers align the stack to 16 bytes only. Spilled vectors could then lie
    // across two cache lines, on some threads or on all.
    if (target.arch == Arch::X86_64)
      function.addFnAttr("stackrealign");
    if (findKernel(std::string_view(function.getName())) &&
        !function.hasFnAttribute(llvm::Attribute::NoInline)) {
      function.removeFnAttr(llvm::Attribute::AlwaysInline);
      function.addFnAttr(llvm::Attribute::NoInline);
    }
  }
  for (llvm::GlobalVariable &global : module.globals()) {
    if (!global.hasLocalLinkage())
      global.setVisibility(llvm::GlobalValue::HiddenVisibility);
    global.setDSOLocal(true);
  }
}

std::string qwen::nameForTarget(llvm::StringRef function,
                                const Target &target) {
  return (function + "." + target.name).str();
}

void qwen::nameForTarget(llvm::Module &module, const Target &target) {
  for (llvm::Function &function : module)
    if (!function.isIntrinsic() && !function.hasLocalLinkage())
      function.setName(nameForTarget(function.getName(), target));
}

void qwen::linkModule(llvm::Module &into, std::unique_ptr<llvm::Module> from) {
  for (const llvm::GlobalValue &value : from->global_values()) {
    if (value.hasLocalLinkage() || value.isDeclarationForLinker())
      continue;
    const llvm::GlobalValue *other = into.getNamedValue(value.getName());
    if (other && !other->isDeclarationForLinker())
      throw Error("symbol '" + part::subject(value.getName().str()) +
                  "' is defined twice");
  }
  const std::string name = from->getName().str();
  if (llvm::Linker::linkModules(into, std::move(from)))
    throw Error("cannot link module '" + name + "' with the generated code");
}

void qwen::linkDriver(llvm::Module &into, const Target &target,
                      CpuFeatureSet features) {
  llvm::Expected<std::unique_ptr<llvm::Module>> driver = llvm::parseBitcodeFile(
      llvm::MemoryBufferRef(driverBitcode(target.arch), "driver"),
      into.getContext());
  if (!driver)
    throw Error("llvm cannot read the driver's bitcode: " +
                llvm::toString(driver.takeError()));
  setTarget(**driver, target, features);
  std::vector<std::string> names;
  for (const llvm::GlobalObject &object : (*driver)->global_objects())
    if (!object.isDeclaration())
      names.push_back(object.getName().str());
  linkModule(into, std::move(*driver));
  for (const std::string &name : names) {
    auto *object = llvm::cast<llvm::GlobalObject>(into.getNamedValue(name));
    object->setComdat(nullptr);
    object->setLinkage(llvm::GlobalValue::InternalLinkage);
  }
}

//===----------------------------------------------------------------------===//
// LLVM IR to LLVM IR
//===----------------------------------------------------------------------===//

void qwen::optimize(llvm::Module &module, const Target &target,
                    llvm::StringRef entry) {
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine(target);
  llvm::PipelineTuningOptions tuning;
  // The emitters choose the vectors. LLVM's vectorizers would only add code for
  // trip counts that do not occur.
  tuning.LoopVectorization = false;
  tuning.LoopInterleaving = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(machine.get(), tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  // The code has no libc, so no loop may become memset or memcpy.
  llvm::TargetLibraryInfoImpl library(llvm::Triple(target.triple));
  library.disableAllFunctions();
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);

  llvm::ModulePassManager passes;
  passes.addPass(llvm::InternalizePass([&](const llvm::GlobalValue &value) {
    return value.getName() == entry;
  }));
  passes.addPass(llvm::GlobalDCEPass());
  passes.addPass(
      builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2));
  passes.run(module, modules);
  verifyGenerated(module);
}

/// The reason why an instruction is not exact, or "".
static std::string findInexact(const llvm::Instruction &instruction) {
  if (const auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
    if (call->getIntrinsicID() == llvm::Intrinsic::fmuladd)
      return "llvm.fmuladd, which may or may not round the product";
  if (const auto *fp = llvm::dyn_cast<llvm::FPMathOperator>(&instruction))
    if (fp->getFastMathFlags().any()) {
      std::string text;
      llvm::raw_string_ostream(text) << instruction;
      return "fast-math flags in '" + llvm::StringRef(text).trim().str() + "'";
    }
  return "";
}

void qwen::verifyGenerated(const llvm::Module &module) {
  for (const llvm::Function &function : module) {
    for (const llvm::Instruction &instruction : llvm::instructions(function)) {
      const std::string wrong = findInexact(instruction);
      if (!wrong.empty())
        throw Error("generated function '" +
                    part::subject(function.getName().str()) + "' has " +
                    part::found(wrong));
    }
  }
  for (const llvm::GlobalVariable &global : module.globals())
    if (!global.isConstant() || global.isDeclaration())
      throw Error("generated code needs the variable '" +
                  part::subject(global.getName().str()) +
                  "', but an artifact has read-only data only");
}

//===----------------------------------------------------------------------===//
// LLVM IR to files
//===----------------------------------------------------------------------===//

/// A copy of `module` through bitcode, which orders lists of uses as printed IR
/// does. Without it, machine code would depend on the history of the passes.
static std::unique_ptr<llvm::Module> copyByBitcode(const llvm::Module &module) {
  llvm::SmallVector<char, 0> bitcode;
  llvm::raw_svector_ostream stream(bitcode);
  llvm::WriteBitcodeToFile(module, stream);
  return llvm::cantFail(llvm::parseBitcodeFile(
      llvm::MemoryBufferRef({bitcode.data(), bitcode.size()}, "qwen-opt"),
      module.getContext()));
}

static llvm::SmallVector<char, 0> emitFile(const llvm::Module &module,
                                           const Target &target,
                                           llvm::CodeGenFileType type) {
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine(target);
  const std::unique_ptr<llvm::Module> copy = copyByBitcode(module);
  copy->setSourceFileName("qwen-opt");
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, type))
    throw Error("llvm cannot write files for " + target.triple);
  passes.run(*copy);
  return bytes;
}

std::vector<char> qwen::emitObject(const llvm::Module &module,
                                   const Target &target) {
  const llvm::SmallVector<char, 0> bytes =
      emitFile(module, target, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

std::string qwen::emitAssembly(const llvm::Module &module,
                               const Target &target) {
  const llvm::SmallVector<char, 0> bytes =
      emitFile(module, target, llvm::CodeGenFileType::AssemblyFile);
  return {bytes.begin(), bytes.end()};
}

std::string qwen::printIR(const llvm::Module &module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}
