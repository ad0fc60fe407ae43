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

/// Checks that `rope` rotates the heads that `op` reads as `name`.
template <typename HeadsOp>
static LogicalResult checkHeads(HeadsOp op, RopeOp rope, StringRef name) {
  if (rope.getHeadSize() == op.getHeadDim())
    return success();
  return op.emitOpError() << "takes " << name << " rotated over heads of "
                          << rope.getHeadSize() << " when heads are "
                          << op.getHeadDim() << " wide";
}

/// Erases `rope`, and then the norm before it, if nothing reads them.
static void eraseUnread(RopeOp rope) {
  if (!rope->use_empty())
    return;
  auto norm = rope.getInput().getDefiningOp<RmsNormOp>();
  rope.erase();
  if (norm && norm->use_empty())
    norm.erase();
}

/// Moves the rotation of `heads`, the operand `name` of `op`, if they are
/// rotated, and the norm of each head before it into `op`.
template <typename HeadsOp>
static LogicalResult fuse(HeadsOp op, OpOperand &heads, StringRef name) {
  auto rope = heads.get().getDefiningOp<RopeOp>();
  if (op.getCos() || !rope)
    return success();
  if (failed(checkHeads(op, rope, name)))
    return failure();
  const FailureOr<Value> plain = fuseNorm(op, rope.getInput(), name);
  if (failed(plain))
    return failure();
  heads.set(*plain);
  op.getCosMutable().assign(rope.getCos());
  op.getSinMutable().assign(rope.getSin());
  eraseUnread(rope);
  return success();
}

/// Moves the rotation of queries and keys of attention over the call into `op`.
/// Norms of heads stay before it: it has one for queries alone.
static LogicalResult fuseOverCall(AttentionOp op) {
  auto ofQueries = op.getQueries().getDefiningOp<RopeOp>();
  auto ofKeys = op.getKeys().getDefiningOp<RopeOp>();
  if (op.getCos() || (!ofQueries && !ofKeys))
    return success();
  if (!ofQueries || !ofKeys || ofQueries.getCos() != ofKeys.getCos() ||
      ofQueries.getSin() != ofKeys.getSin())
    return op.emitOpError() << "takes queries and keys with other rotations "
                               "when one of both is needed";
  if (failed(checkHeads(op, ofQueries, "queries")) ||
      failed(checkHeads(op, ofKeys, "keys")))
    return failure();
  op.getCosMutable().assign(ofQueries.getCos());
  op.getSinMutable().assign(ofQueries.getSin());
  op.getQueriesMutable().assign(ofQueries.getInput());
  op.getKeysMutable().assign(ofKeys.getInput());
  eraseUnread(ofQueries);
  if (ofKeys != ofQueries)
    eraseUnread(ofKeys);
  return success();
}

static LogicalResult fuseAttention(AttentionOp op) {
  if (op.getKeys())
    return fuseOverCall(op);
  return fuse(op, op.getQueriesMutable(), "queries");
}

namespace {
struct FuseAttention final : qwen::impl::FuseAttentionBase<FuseAttention> {
  void runOnOperation() override {
    const WalkResult result = getOperation().walk([](Operation *op) {
      if (auto append = dyn_cast<AppendOp>(op))
        return WalkResult(fuse(append, append.getKeysMutable(), "keys"));
      if (auto attention = dyn_cast<AttentionOp>(op))
        return WalkResult(fuseAttention(attention));
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
