//===- FuseProjections.cpp - Products that share their input --------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/FusedProducts.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEPROJECTIONS
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// Replaces `linears`, in program order, by one at the place of the first.
static void fuse(ArrayRef<LinearOp> linears) {
  SmallVector<Location> locations;
  SmallVector<Type> types;
  SmallVector<Attribute> weights, biases;
  for (LinearOp linear : linears) {
    locations.push_back(linear.getLoc());
    llvm::append_range(types, linear.getResultTypes());
    llvm::append_range(weights, linear.getWeights());
    if (ArrayAttr bias = linear.getBiasAttr())
      llvm::append_range(biases, bias);
  }

  LinearOp first = linears.front();
  OpBuilder builder(first);
  auto fused = LinearOp::create(builder, builder.getFusedLoc(locations), types,
                                first.getInput(), builder.getArrayAttr(weights),
                                biases.empty() ? ArrayAttr()
                                               : builder.getArrayAttr(biases));
  ValueRange results = fused.getResults();
  for (LinearOp linear : linears) {
    const size_t count = linear->getNumResults();
    linear->replaceAllUsesWith(results.take_front(count));
    results = results.drop_front(count);
    linear.erase();
  }
}

SmallVector<SmallVector<LinearOp>> qwen::productsOfOneInput(Block &block) {
  llvm::MapVector<std::pair<Value, unsigned>, SmallVector<LinearOp>> sharing;
  for (LinearOp linear : block.getOps<LinearOp>())
    if (!linear.getResidual())
      sharing[{linear.getInput(), linear.getBias().has_value()}].push_back(
          linear);
  return llvm::to_vector(llvm::make_second_range(sharing));
}

std::vector<std::vector<std::string>> qwen::fusedMatrices(ModuleOp module) {
  // Biases and residuals are ops of their own at this stage.
  OwningOpRef<ModuleOp> copy = module.clone();
  PassManager manager(module.getContext());
  manager.addPass(createFuseEpilogues());
  std::vector<std::vector<std::string>> result;
  if (failed(manager.run(*copy)))
    return result;
  const auto textOf = [](Attribute symbol) {
    return cast<FlatSymbolRefAttr>(symbol).getValue().str();
  };
  copy->walk([&](Block *block) {
    for (ArrayRef<LinearOp> linears : productsOfOneInput(*block)) {
      std::vector<std::string> &names = result.emplace_back();
      for (LinearOp linear : linears)
        llvm::append_range(names, llvm::map_range(linear.getWeights(), textOf));
    }
  });
  copy->walk([&](ExpertsUpOp up) {
    if (up.getGateAttr())
      result.push_back({textOf(up.getGateAttr()), textOf(up.getUpAttr())});
  });
  return result;
}

namespace {
struct FuseProjections final
    : qwen::impl::FuseProjectionsBase<FuseProjections> {
  void runOnOperation() override {
    const SymbolTable symbols(getOperation());
    getOperation().walk([&](Block *block) {
      for (ArrayRef<LinearOp> linears : productsOfOneInput(*block)) {
        llvm::MapVector<std::pair<Attribute, Attribute>, SmallVector<LinearOp>>
            joined;
        for (LinearOp linear : linears)
          if (auto weight = symbols.lookup<WeightOp>(
                  cast<FlatSymbolRefAttr>(linear.getWeights()[0]).getValue()))
            joined[{weight.getFormatAttr(), weight.getImageAttr()}].push_back(
                linear);
        for (const auto &[key, same] : joined)
          if (same.size() > 1)
            fuse(same);
      }
    });
  }
};
} // namespace
