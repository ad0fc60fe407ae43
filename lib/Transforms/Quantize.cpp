//===- Quantize.cpp - Formats of weights and activations ------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_QUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct Quantize final : qwen::impl::QuantizeBase<Quantize> {
  using QuantizeBase::QuantizeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    module->setAttr(kKvFormatAttr, KvFormatAttr::get(&getContext(), kv));
    module.walk([&](WeightOp weight) {
      const bool isMatrix = cast<ShapedType>(weight.getType()).getRank() == 2;
      weight.setFormatAttr(FormatAttr::get(
          &getContext(), isMatrix ? weights : WeightFormat::F32));
    });
    if (!isQuantized(weights))
      return;

    module.walk([&](Operation *op) {
      if (auto linear = dyn_cast<LinearOp>(op))
        linear.getInputMutable().assign(quantized(linear.getInput()));
      else if (auto head = dyn_cast<LmHeadOp>(op))
        head.getInputMutable().assign(quantized(head.getInput()));
    });
  }

private:
  /// `rows` in blocks; quantized once for all users, right behind their source.
  Value quantized(Value rows) {
    if (isQuantizedActivations(rows.getType()))
      return rows;
    Value &value = quantizedRows[rows];
    if (!value) {
      OpBuilder builder(&getContext());
      builder.setInsertionPointAfterValue(rows);
      value = QuantizeOp::create(builder, rows.getLoc(), rows);
    }
    return value;
  }

  llvm::DenseMap<Value, Value> quantizedRows;
};
} // namespace
