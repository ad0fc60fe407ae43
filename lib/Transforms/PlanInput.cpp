//===- PlanInput.cpp - What a plan is made for ----------------------------===//

#include "PlanInput.h"

using namespace mlir;
using namespace qwen;

FailureOr<PlanInput> qwen::readPlanInput(ModuleOp module) {
  auto maxTokens = module->getAttrOfType<IntegerAttr>(kMaxTokensAttr);
  auto maxRows = module->getAttrOfType<IntegerAttr>(kMaxRowsAttr);
  auto forward = module.lookupSymbol<func::FuncOp>(kForwardName);
  const auto lacks = [&](const Twine &what) {
    module.emitError() << "the module has no " << what;
    return failure();
  };
  if (!maxTokens)
    return lacks(kMaxTokensAttr);
  if (!maxRows)
    return lacks(kMaxRowsAttr);
  if (!forward || forward.isExternal())
    return lacks(Twine("function @") + kForwardName + " to plan");
  if (maxRows.getInt() > maxTokens.getInt()) {
    module.emitError() << kMaxRowsAttr << " is " << maxRows.getInt()
                       << " when 1 to " << maxTokens.getInt() << " is needed";
    return failure();
  }
  return PlanInput{forward, maxTokens.getInt(), maxRows.getInt()};
}

Operation *qwen::writerOf(Value value) {
  while (auto view = value.getDefiningOp<WantedRowsOp>())
    value = view.getInput();
  return value.getDefiningOp();
}
