//===- FuseEpilogues.cpp - Biases and residuals of products ---------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEEPILOGUES
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// The op that computes `value`, if nobody else reads it.
static ForwardOp onlyWriter(Value value) {
  return value.hasOneUse() ? value.getDefiningOp<ForwardOp>() : nullptr;
}

static void fuseBias(AddBiasOp op) {
  ForwardOp product = onlyWriter(op.getInput());
  if (!product || !product.fuseBias(op.getBiasAttr()))
    return;
  op.replaceAllUsesWith(op.getInput());
  op.erase();
}

/// Whether `value` is there before `op`.
static bool isBefore(Value value, Operation *op) {
  Operation *source = value.getDefiningOp();
  return !source ||
         (source->getBlock() == op->getBlock() && source->isBeforeInBlock(op));
}

/// Makes `addend` a part of the op that computes `product`, if it is there
/// before that op.
static bool fuseAddend(AddOp op, Value product, Value addend) {
  ForwardOp writer = onlyWriter(product);
  if (!writer || !isBefore(addend, writer) || !writer.fuseAddend(addend))
    return false;
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
      (void)(fuseAddend(op, right, left) || fuseAddend(op, left, right));
    });
  }
};
} // namespace
