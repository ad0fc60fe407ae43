//===- FuseAttention.cpp - Append, norms and rotations of attention -------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEATTENTION
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
/// Heads that are to be rotated, and normed before where `norm` is set.
struct RotatedHeads {
  Value heads, cos, sin;
  /// The size of a head, if only a part of it is rotated.
  IntegerAttr headDim;
  FlatSymbolRefAttr norm;
  FloatAttr eps;
};
} // namespace

/// Looks through the rotation that makes `value` (the attention's `name`) and
/// the norm of each head before it.
static FailureOr<RotatedHeads> matchRotation(AttentionOp op, Value value,
                                             StringRef name) {
  auto rope = value.getDefiningOp<RopeOp>();
  if (!rope) {
    op.emitOpError() << "takes " << name
                     << " that are not made by qwen.rope: they cannot be "
                        "rotated as they are read";
    return failure();
  }
  RotatedHeads rotated = {rope.getInput(),       rope.getCos(), rope.getSin(),
                          rope.getHeadDimAttr(), nullptr,       nullptr};
  auto norm = rope.getInput().getDefiningOp<RmsNormOp>();
  if (!norm || !norm.getHeadDim())
    return rotated;
  if (static_cast<int64_t>(*norm.getHeadDim()) != op.getHeadDim()) {
    op.emitOpError() << "takes " << name << " normed over heads of "
                     << *norm.getHeadDim() << " when heads are "
                     << op.getHeadDim() << " wide";
    return failure();
  }
  rotated.heads = norm.getInput();
  rotated.norm = norm.getWeightAttr();
  rotated.eps = norm.getEpsAttr();
  return rotated;
}

/// Erases the rotation behind `value`, and the norm behind that, where nobody
/// reads them any more.
static void eraseDeadRotation(Value value) {
  auto rope = value.getDefiningOp<RopeOp>();
  if (!rope->use_empty())
    return;
  auto norm = rope.getInput().getDefiningOp<RmsNormOp>();
  rope.erase();
  if (norm && norm->use_empty())
    norm.erase();
}

static LogicalResult fuse(AttentionOp op) {
  Value keys = op.getKeys(), queries = op.getQueries();
  FailureOr<RotatedHeads> k = matchRotation(op, keys, "keys");
  FailureOr<RotatedHeads> q = matchRotation(op, queries, "queries");
  if (failed(k) || failed(q))
    return failure();

  OpBuilder builder(op);
  AppendOp::create(builder, op.getLoc(), k->heads, op.getValues(), k->cos,
                   k->sin, op.getLayerAttr(), k->headDim, k->norm, k->eps);
  op.getKeysMutable().clear();
  op.getValuesMutable().clear();
  op.getQueriesMutable().assign(q->heads);
  op.getCosMutable().assign(q->cos);
  op.getSinMutable().assign(q->sin);
  op.setPartial(q->headDim != nullptr);
  if (q->norm) {
    op.setNormAttr(q->norm);
    op.setEpsAttr(q->eps);
  }
  eraseDeadRotation(keys);
  if (queries != keys)
    eraseDeadRotation(queries);
  return success();
}

namespace {
struct FuseAttention final : qwen::impl::FuseAttentionBase<FuseAttention> {
  void runOnOperation() override {
    const WalkResult result = getOperation().walk([](AttentionOp op) {
      return WalkResult(op.getKeys() ? fuse(op) : success());
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
