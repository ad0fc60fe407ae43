//===- Work.cpp - What ops move and compute -------------------------------===//

#include "qwen/CodeGen/Lower/Work.h"

#include "qwen/Dialect/QwenDialect.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace qwen;

static int64_t columns(Value rows) {
  return cast<RankedTensorType>(rows.getType()).getDimSize(1);
}

/// Bytes of one row of an operand or result: f32, or int8 with the scale of
/// each block and the sum of each group.
static int64_t tokenBytes(Value value) {
  const auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() != 2)
    return 0;
  const int64_t n = type.getDimSize(1);
  if (!type.getElementType().isInteger())
    return 4 * n;
  return n + 4 * ceilDiv(n, kActivationBlock) + 4 * (n / kGroup);
}

OpWork qwen::workOf(Operation *op, ModuleOp module, KvFormat kv) {
  const auto packedBytes = [&](FlatSymbolRefAttr symbol) {
    auto packed =
        symbol ? module.lookupSymbol<PackedOp>(symbol.getValue()) : PackedOp();
    return packed ? static_cast<int64_t>(packed.getByteSize()) : int64_t{0};
  };
  OpWork work;
  work.kind = op->getName().stripDialect().str();
  for (Value operand : op->getOperands())
    work.tokenBytes += tokenBytes(operand);
  for (Value result : op->getResults())
    work.tokenBytes += tokenBytes(result);
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](EmbeddingOp typed) {
        auto packed = module.lookupSymbol<PackedOp>(typed.getWeight());
        if (!packed)
          return;
        const int64_t rows = cast<ShapedType>(packed.getType()).getDimSize(0);
        work.tokenBytes += static_cast<int64_t>(packed.getByteSize()) /
                           alignTo(rows, kPanelOutputs);
      })
      .Case([&](RmsNormOp typed) {
        work.weightBytes = packedBytes(typed.getWeightAttr());
        work.wantedRows =
            typed.getInput().getDefiningOp<WantedRowsOp>() != nullptr;
      })
      .Case([&](LinearOp typed) {
        work.weightBytes = packedBytes(typed.getPackedAttr()) +
                           packedBytes(typed.getPackedBiasAttr());
        for (Value result : typed.getResults())
          work.macs += columns(typed.getInput()) * columns(result);
      })
      .Case([&](LmHeadOp typed) {
        work.weightBytes = packedBytes(typed.getPackedAttr());
        work.macs = columns(typed.getInput()) * columns(typed.getResult());
        work.wantedRows = true;
      })
      .Case([&](AppendOp typed) {
        work.weightBytes = packedBytes(typed.getNormAttr());
        work.tokenBytes +=
            (columns(typed.getKeys()) + columns(typed.getValues())) *
            kvElementBytes(kv);
      })
      .Case([&](AttentionOp typed) {
        work.weightBytes = packedBytes(typed.getNormAttr());
        const auto headDim = static_cast<int64_t>(typed.getHeadDim());
        work.positionBytes = 2 * static_cast<int64_t>(typed.getKvHeads()) *
                             headDim * kvElementBytes(kv);
        work.positionMacs =
            2 * static_cast<int64_t>(typed.getHeads()) * headDim;
      });
  return work;
}
