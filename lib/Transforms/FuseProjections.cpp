//===- FuseProjections.cpp - Products that share their input --------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

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

namespace {
struct FuseProjections final
    : qwen::impl::FuseProjectionsBase<FuseProjections> {
  void runOnOperation() override {
    const SymbolTable symbols(getOperation());
    getOperation().walk([&](Block *block) {
      // By input, format of the weights and whether they have a bias.
      llvm::MapVector<std::tuple<Value, Attribute, unsigned>,
                      SmallVector<LinearOp>>
          sharing;
      for (LinearOp linear : block->getOps<LinearOp>()) {
        if (linear.getResidual())
          continue;
        auto weight = symbols.lookup<WeightOp>(
            cast<FlatSymbolRefAttr>(linear.getWeights()[0]).getValue());
        if (weight)
          sharing[{linear.getInput(), weight.getFormatAttr(),
                   linear.getBias().has_value()}]
              .push_back(linear);
      }
      for (auto &[key, linears] : sharing)
        if (linears.size() > 1)
          fuse(linears);
    });
  }
};
} // namespace
