//===- FuseAttention.cpp - Norms and rotations of append and attention ----===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEATTENTION
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// Looks through the norm of each head of `rotated`, which `op` reads as
/// `name`: the norm moves into `op`. Returns what `op` reads then.
template <typename HeadsOp>
static FailureOr<Value> fuseNorm(HeadsOp op, Value rotated, StringRef name) {
  auto norm = rotated.getDefiningOp<RmsNormOp>();
  if (!norm || !norm.getHeadDim())
    return rotated;
  if (static_cast<int64_t>(*norm.getHeadDim()) != op.getHeadDim()) {
    op.emitOpError() << "takes " << name << " normed over heads of "
                     << *norm.getHeadDim() << " when heads are "
                     << op.getHeadDim() << " wide";
    return failure();
  }
  op.setNormAttr(norm.getWeightAttr());
  op.setEpsAttr(norm.getEpsAttr());
  return norm.getInput();
}

/// Moves the rotation of `heads`, the operand `name` of `op`, and the norm of
/// each head before it into `op`.
template <typename HeadsOp>
static LogicalResult fuse(HeadsOp op, OpOperand &heads, StringRef name) {
  if (op.getCos())
    return success();
  auto rope = heads.get().getDefiningOp<RopeOp>();
  if (!rope)
    return op.emitOpError() << "takes " << name
                            << " that are not made by qwen.rope: they cannot "
                               "be rotated as they are read";
  if (rope.getHeadSize() != op.getHeadDim())
    return op.emitOpError() << "takes " << name << " rotated over heads of "
                            << rope.getHeadSize() << " when heads are "
                            << op.getHeadDim() << " wide";
  const FailureOr<Value> plain = fuseNorm(op, rope.getInput(), name);
  if (failed(plain))
    return failure();
  heads.set(*plain);
  op.getCosMutable().assign(rope.getCos());
  op.getSinMutable().assign(rope.getSin());
  if (!rope->use_empty())
    return success();
  auto norm = rope.getInput().getDefiningOp<RmsNormOp>();
  rope.erase();
  if (norm && norm->use_empty())
    norm.erase();
  return success();
}

namespace {
struct FuseAttention final : qwen::impl::FuseAttentionBase<FuseAttention> {
  void runOnOperation() override {
    const WalkResult result = getOperation().walk([](Operation *op) {
      if (auto append = dyn_cast<AppendOp>(op))
        return WalkResult(fuse(append, append.getKeysMutable(), "keys"));
      if (auto attention = dyn_cast<AttentionOp>(op))
        return WalkResult(
            fuse(attention, attention.getQueriesMutable(), "queries"));
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
