//===- FuseQuantize.cpp - Quantization at the end of other ops ------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEQUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// Whether `op` can quantize the activations that it computes.
static bool canQuantize(Operation *op) {
  if (auto norm = dyn_cast_or_null<RmsNormOp>(op))
    return !norm.getHeadDim();
  return isa_and_nonnull<GateOp, SwiGluOp, TurnOp>(op);
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
      if (transform ? !fuseHadamard(transform)
                    : !canQuantize(op.getInput().getDefiningOp()))
        return;
      Value made = op.getInput();
      made.setType(op.getResult().getType());
      op.replaceAllUsesWith(made);
      op.erase();
    });
  }
};
} // namespace
