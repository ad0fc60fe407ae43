//===- FuseEpilogues.cpp - Biases and residuals of products ---------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEEPILOGUES
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// The linear that makes `value` if it can take one more epilogue: it has one
/// weight and no residual, and nobody else reads its result.
static LinearOp takesEpilogue(Value value) {
  auto linear = value.getDefiningOp<LinearOp>();
  if (!linear || !value.hasOneUse() || linear.getWeights().size() != 1 ||
      linear.getResidual())
    return nullptr;
  return linear;
}

static void fuseBias(AddBiasOp op) {
  LinearOp linear = takesEpilogue(op.getInput());
  if (!linear || linear.getBias())
    return;
  linear.setBiasAttr(Builder(op).getArrayAttr(op.getBiasAttr()));
  op.replaceAllUsesWith(op.getInput());
  op.erase();
}

/// Whether `value` is there before `op`.
static bool isBefore(Value value, Operation *op) {
  Operation *source = value.getDefiningOp();
  return !source ||
         (source->getBlock() == op->getBlock() && source->isBeforeInBlock(op));
}

/// Makes `residual` the residual of the linear behind `product`, if it is there
/// before the linear.
static bool fuseResidual(AddOp op, Value product, Value residual) {
  LinearOp linear = takesEpilogue(product);
  if (!linear || !isBefore(residual, linear))
    return false;
  linear.getResidualMutable().assign(residual);
  op.replaceAllUsesWith(product);
  op.erase();
  return true;
}

/// Makes `other` an addend of the experts that compute `product`, if it is
/// there before them.
static bool fuseAddend(AddOp op, Value product, Value other) {
  auto experts = product.getDefiningOp<ExpertsDownOp>();
  if (!experts || !product.hasOneUse() ||
      experts.getAddends().size() == kMaxAddends || !isBefore(other, experts))
    return false;
  experts.getAddendsMutable().append(other);
  op.replaceAllUsesWith(product);
  op.erase();
  return true;
}

namespace {
struct FuseEpilogues final : qwen::impl::FuseEpiloguesBase<FuseEpilogues> {
  void runOnOperation() override {
    getOperation().walk(fuseBias);
    getOperation().walk([](AddOp op) {
      // Which side is the product does not matter to the sum.
      const Value left = op.getLhs(), right = op.getRhs();
      (void)(fuseResidual(op, right, left) || fuseResidual(op, left, right) ||
             fuseAddend(op, right, left) || fuseAddend(op, left, right));
    });
  }
};
} // namespace
