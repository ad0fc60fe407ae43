//===- FuseQuantize.cpp - Quantization at the end of other ops ------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEQUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// Whether the op that computes `activations` can quantize them.
static bool canQuantize(Value activations) {
  auto op = activations.getDefiningOp<ForwardOp>();
  return op && op.canQuantizeResult();
}

/// Makes a transform a part of the swiglu that computes its input. Returns
/// whether it could.
static bool fuseHadamard(HadamardOp op) {
  Value made = op.getInput();
  auto gated = made.getDefiningOp<SwiGluOp>();
  if (!gated || !made.hasOneUse())
    return false;
  gated.setHadamard(true);
  op.replaceAllUsesWith(made);
  op.erase();
  return true;
}

namespace {
struct FuseQuantize final : qwen::impl::FuseQuantizeBase<FuseQuantize> {
  void runOnOperation() override {
    getOperation().walk([](QuantizeOp op) {
      if (!op.getInput().hasOneUse())
        return;
      auto transform = op.getInput().getDefiningOp<HadamardOp>();
      if (transform ? !fuseHadamard(transform) : !canQuantize(op.getInput()))
        return;
      Value made = op.getInput();
      made.setType(op.getResult().getType());
      op.replaceAllUsesWith(made);
      op.erase();
    });
  }
};
} // namespace
