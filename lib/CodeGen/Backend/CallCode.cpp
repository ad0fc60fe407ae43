//===- CallCode.cpp - Code of a kernel for calls of one size --------------===//

#include "qwen/CodeGen/Backend/CallCode.h"

#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/KernelCode.h"
#include "qwen/Support/Error.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopUnrollPass.h"
#include "llvm/Transforms/Scalar/SCCP.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

using namespace qwen;

/// The value of a size in a call.
static int64_t valueOf(SizeRole role, CallSize size) {
  switch (role) {
  case SizeRole::Length:
    return size.length;
  case SizeRole::Queries:
    return size.queries;
  case SizeRole::Tokens:
    return size.tokens;
  case SizeRole::Chosen:
    return size.chosen;
  default:
    return 1;
  }
}

/// Puts constants in place of the integer parameters.
static void fixSizes(llvm::Function &function, const KernelInfo &kernel,
                     CallSize size) {
  const auto *role = infoOf(kernel.op).sizes.data();
  for (llvm::Argument &argument : function.args())
    if (argument.getType()->isIntegerTy())
      argument.replaceAllUsesWith(llvm::ConstantInt::getSigned(
          argument.getType(), valueOf(*role++, size)));
}

namespace {
/// Simplifies a function whose sizes are constants, and counts the passes of
/// its loops.
class FixedLoops {
public:
  explicit FixedLoops(llvm::Function &function) : function(function) {
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
  }

  std::vector<int64_t> passes() {
    simplify();
    if (markUneven()) {
      llvm::FunctionPassManager unroll;
      unroll.addPass(llvm::createFunctionToLoopPassAdaptor(
          llvm::LoopFullUnrollPass(2, /*OnlyWhenForced=*/true)));
      unroll.run(function, functions);
      simplify();
    }
    return count();
  }

private:
  /// Removes paths that are not taken, and no more: the rest of the code stays.
  void simplify() {
    llvm::FunctionPassManager passes;
    for (int round = 0; round < 2; ++round) {
      passes.addPass(llvm::SCCPPass());
      passes.addPass(llvm::SimplifyCFGPass());
    }
    passes.run(function, functions);
  }

  /// Passes of the loops in the order of their heads; 0 if LLVM does not know.
  std::vector<int64_t> count() {
    auto &evolution =
        functions.getResult<llvm::ScalarEvolutionAnalysis>(function);
    std::vector<int64_t> result;
    for (const llvm::Loop *loop : loopsInOrder())
      result.push_back(evolution.getSmallConstantTripCount(loop));
    return result;
  }

  /// The loops in the order of the code.
  llvm::SmallVector<llvm::Loop *, 4> loopsInOrder() {
    return functions.getResult<llvm::LoopAnalysis>(function)
        .getLoopsInPreorder();
  }

  /// Asks to unroll the loops whose passes are not alike. Returns whether there
  /// are any.
  bool markUneven() {
    bool any = false;
    for (llvm::Loop *loop : loopsInOrder())
      if (isUneven(*loop)) {
        llvm::LLVMContext &context = function.getContext();
        // The build forbids to unroll loops of C++.
        loop->setLoopID(llvm::makePostTransformationMetadata(
            context, loop->getLoopID(), {"llvm.loop.unroll."},
            {llvm::MDNode::get(
                context,
                llvm::MDString::get(context, "llvm.loop.unroll.full"))}));
        any = true;
      }
    return any;
  }

  /// Whether a branch in the loop depends on the number of the pass, or an
  /// inner loop has passes that LLVM does not know.
  bool isUneven(const llvm::Loop &loop) {
    auto &evolution =
        functions.getResult<llvm::ScalarEvolutionAnalysis>(function);
    if (evolution.getSmallConstantTripCount(&loop) == 0)
      return false;
    const auto counts = [&](const llvm::Value *value) {
      return evolution.isSCEVable(value->getType()) &&
             llvm::SCEVExprContains(
                 evolution.getSCEV(const_cast<llvm::Value *>(value)),
                 [&](const llvm::SCEV *part) {
                   const auto *step =
                       llvm::dyn_cast<llvm::SCEVAddRecExpr>(part);
                   return step && step->getLoop() == &loop;
                 });
    };
    const auto &all = functions.getResult<llvm::LoopAnalysis>(function);
    for (const llvm::BasicBlock *block : loop.blocks()) {
      const auto *branch =
          llvm::dyn_cast<llvm::BranchInst>(block->getTerminator());
      if (all.getLoopFor(block) != &loop || loop.isLoopExiting(block) ||
          !branch || !branch->isConditional())
        continue;
      const auto *test = llvm::dyn_cast<llvm::ICmpInst>(branch->getCondition());
      if (test && llvm::any_of(test->operands(), counts))
        return true;
    }
    return llvm::any_of(loop.getSubLoops(), [&](const llvm::Loop *inner) {
      return evolution.getSmallConstantTripCount(inner) == 0;
    });
  }

  llvm::Function &function;
  llvm::PassBuilder builder;
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
};
} // namespace

CallCode qwen::generateCall(const KernelInfo &kernel, const Target &target,
                            CallSize size) {
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> module =
      generateKernel(kernel, target, context);
  llvm::Function &function =
      *module->getFunction(nameForTarget(llvm::StringRef(kernel.name), target));
  fixSizes(function, kernel, size);
  const std::vector<int64_t> passes = FixedLoops(function).passes();
  if (llvm::is_contained(passes, 0))
    throw Error("llvm does not know how often a loop of it runs");
  return {emitObject(*module, target), passes};
}
