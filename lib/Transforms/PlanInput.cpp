//===- PlanInput.cpp - What a plan is made for ----------------------------===//

#include "PlanInput.h"

using namespace mlir;
using namespace qwen;

FailureOr<PlanInput> qwen::readPlanInput(func::FuncOp program) {
  auto maxTokens = program->getAttrOfType<IntegerAttr>(kMaxTokensAttr);
  auto maxRows = program->getAttrOfType<IntegerAttr>(kMaxRowsAttr);
  if (!maxTokens || !maxRows) {
    program.emitError() << "program @" << program.getSymName() << " has no "
                        << (maxTokens ? kMaxRowsAttr : kMaxTokensAttr);
    return failure();
  }
  if (maxRows.getInt() > maxTokens.getInt()) {
    program.emitError() << kMaxRowsAttr << " of program @"
                        << program.getSymName() << " is " << maxRows.getInt()
                        << " when 1 to " << maxTokens.getInt() << " is needed";
    return failure();
  }
  return PlanInput{program, maxTokens.getInt(), maxRows.getInt()};
}

Operation *qwen::writerOf(Value value) {
  while (auto view = value.getDefiningOp<WantedRowsOp>())
    value = view.getInput();
  return value.getDefiningOp();
}
