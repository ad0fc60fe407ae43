//===- PlanInput.cpp - What a plan is made for ----------------------------===//

#include "PlanInput.h"

using namespace mlir;
using namespace qwen;

/// Most tokens of one call; keeps sizes far from overflow.
static constexpr int64_t kMostTokens = int64_t{1} << 20;

static FailureOr<int64_t> readLimit(ModuleOp module, StringRef name,
                                    int64_t most) {
  auto attribute = module->getAttrOfType<IntegerAttr>(name);
  if (!attribute || !attribute.getType().isSignlessInteger(64)) {
    module.emitError() << "the module has no " << name << " of type i64";
    return failure();
  }
  const int64_t value = attribute.getInt();
  if (value < 1 || value > most) {
    module.emitError() << name << " is " << value << " when 1 to " << most
                       << " is needed";
    return failure();
  }
  return value;
}

FailureOr<PlanInput> qwen::readPlanInput(ModuleOp module) {
  const FailureOr<int64_t> maxTokens =
      readLimit(module, kMaxTokensAttr, kMostTokens);
  const FailureOr<int64_t> maxRows = readLimit(
      module, kMaxRowsAttr, succeeded(maxTokens) ? *maxTokens : kMostTokens);
  if (failed(maxTokens) || failed(maxRows))
    return failure();
  auto forward = module.lookupSymbol<func::FuncOp>(kForwardName);
  if (!forward || forward.isExternal()) {
    module.emitError() << "the module has no function @" << kForwardName
                       << " to plan";
    return failure();
  }
  return PlanInput{forward, *maxTokens, *maxRows};
}

bool qwen::isPlanned(Operation *op) {
  return isa_and_nonnull<EmbeddingOp, RopeTableOp, RmsNormOp, LinearOp,
                         SwiGluOp, QuantizeOp, AppendOp, AttentionOp, LmHeadOp>(
      op);
}

bool qwen::isDividedByTokens(Operation *op) {
  return isa<EmbeddingOp, RopeTableOp, RmsNormOp, QuantizeOp>(op);
}

Operation *qwen::writerOf(Value value) {
  while (auto view = value.getDefiningOp<WantedRowsOp>())
    value = view.getInput();
  return value.getDefiningOp();
}

int64_t qwen::widthOf(Value rows) {
  return cast<RankedTensorType>(rows.getType()).getDimSize(1);
}
