//===- FuseQuantize.cpp - Quantization at the end of other ops ------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEQUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// Whether `op` can quantize the rows that it computes.
static bool canQuantize(Operation *op) {
  if (auto norm = dyn_cast_or_null<RmsNormOp>(op))
    return !norm.getHeadDim();
  return isa_and_nonnull<GateOp, SwiGluOp, TurnOp>(op);
}

/// Makes a transform a part of the swiglu that computes its input. Returns
/// whether it could.
static bool fuseHadamard(HadamardOp op) {
  Value rows = op.getInput();
  auto gated = rows.getDefiningOp<SwiGluOp>();
  if (!gated || !rows.hasOneUse())
    return false;
  gated.setHadamard(true);
  op.replaceAllUsesWith(rows);
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
      Value rows = op.getInput();
      rows.setType(op.getResult().getType());
      op.replaceAllUsesWith(rows);
      op.erase();
    });
  }
};
} // namespace
