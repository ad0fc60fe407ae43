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
  return isa_and_nonnull<GateOp, SwiGluOp>(op);
}

namespace {
struct FuseQuantize final : qwen::impl::FuseQuantizeBase<FuseQuantize> {
  void runOnOperation() override {
    getOperation().walk([](QuantizeOp op) {
      Value rows = op.getInput();
      if (!rows.hasOneUse() || !canQuantize(rows.getDefiningOp()))
        return;
      rows.setType(op.getResult().getType());
      op.replaceAllUsesWith(rows);
      op.erase();
    });
  }
};
} // namespace
