//===- Work.cpp - What ops move and compute -------------------------------===//

#include "qwen/CodeGen/Lower/Work.h"

using namespace mlir;
using namespace qwen;

/// Bytes of a token in an operand or result: f32, or int8 with the scale of
/// each block and the sum of each group. Integers are of the call.
static int64_t tokenBytes(Value value) {
  if (isTokenIntegers(value.getType()) || isIntegers(value.getType()))
    return 0;
  const int64_t n = widthOf(value), choices = choicesOfToken(value);
  if (!isInBlocks(value.getType()))
    return choices * 4 * n;
  return choices * (n + 4 * ceilDiv(n, kActivationBlock) + 4 * (n / kGroup));
}

OpWork qwen::workOf(ForwardOp op, ModuleOp module) {
  OpWork work;
  work.kind = parseOpKind(op->getName().stripDialect()).value_or(OpKind::Other);
  work.count = *indexOf(op->getParentOfType<func::FuncOp>(), runsOn(op));
  for (Value operand : op->getOperands())
    work.tokenBytes += tokenBytes(operand);
  for (Value result : op->getResults())
    work.tokenBytes += tokenBytes(result);
  for (auto [i, use] : llvm::enumerate(op.getWeightUses())) {
    auto part = module.lookupSymbol<PackedOp>(
        cast<FlatSymbolRefAttr>(op.getPackedAttr()[i]));
    const int64_t bytes = part.getByteSize();
    work.weightBytes += bytes;
    work.routed |= use.experts.has_value();
    if (use.experts)
      work.activeBytes += bytes / use.experts->count * use.experts->active;
    else if (use.role == WeightRole::Gathered)
      work.activeBytes +=
          bytes / alignTo(cast<ShapedType>(part.getType()).getDimSize(0),
                          kPanelOutputs);
    else
      work.activeBytes += bytes;
  }
  for (auto [i, use] : llvm::enumerate(op.getKernelUses())) {
    if (use.gemm)
      for (KernelCalls &calls : work.calls)
        if (calls.kernel + 1 == static_cast<int64_t>(i))
          calls.gemm = static_cast<int64_t>(i);
    for (KernelCalls calls : use.calls) {
      calls.kernel = static_cast<int64_t>(i);
      work.calls.push_back(calls);
    }
  }
  op.addWork(work);
  return work;
}
